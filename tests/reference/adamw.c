/* Clipping and AdamW as PyTorch documents them (torch.nn.utils.clip_grad_norm_, torch.optim.AdamW). */
#include "reference/reference.h"

#include <math.h>

double ref_clip(double *gradients, int64_t count, double clip)
{
    double squares = 0;
    for (int64_t i = 0; i < count; i++) {
        squares += gradients[i] * gradients[i];
    }
    const double norm = sqrt(squares), factor = clip / (norm + 1e-6);
    for (int64_t i = 0; clip > 0 && factor < 1 && i < count; i++) {
        gradients[i] *= factor;
    }
    return norm;
}

void ref_adamw(double *parameters, const double *gradients, double *m, double *v, int64_t count, int64_t t,
               const flim_step *step)
{
    const double lr = (double)step->learning_rate, beta1 = (double)step->beta1, beta2 = (double)step->beta2;
    for (int64_t i = 0; i < count; i++) {
        parameters[i] -= lr * (double)step->weight_decay * parameters[i];
        m[i] = beta1 * m[i] + (1 - beta1) * gradients[i];
        v[i] = beta2 * v[i] + (1 - beta2) * gradients[i] * gradients[i];
        double m_hat = m[i] / (1 - pow(beta1, (double)t)), v_hat = v[i] / (1 - pow(beta2, (double)t));
        parameters[i] -= lr * m_hat / (sqrt(v_hat) + (double)step->epsilon);
    }
}
