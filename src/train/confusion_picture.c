#include "train/confusion_picture.h"

#include <math.h>

#include "core/alloc.h"
#include "formats/png.h"

enum { MOST_WITH_NUMBERS = 20, SQUARE = 48, SMALL_SQUARE = 6, DOT = 3, DIGIT_COLUMNS = 3, DIGIT_ROWS = 5 };

/* Digits of 3 x 5 dots, row by row from above, the left dot of a row first. */
static const char *const digits[10] = {"111101101101111", "010110010010111", "111001111100111", "111001111001111",
                                       "101101111001001", "111100111001111", "111100111101111", "111001001001001",
                                       "111101111101111", "111101111001111"};

typedef struct picture {
    int side;
    uint8_t *pixel; /* (side,side,3) */
} picture;

static void fill(const picture *p, int y, int x, int height, int width, const uint8_t color[3])
{
    for (int i = y; i < y + height; i++) {
        for (int j = x; j < x + width; j++) {
            for (int c = 0; c < 3; c++) {
                p->pixel[((size_t)i * (size_t)p->side + (size_t)j) * 3 + (size_t)c] = color[c];
            }
        }
    }
}

/* A number from 0 to 100 in the middle of the square at (y,x). */
static void write_number(const picture *p, int y, int x, int number, const uint8_t color[3])
{
    const int figures = number >= 100 ? 3 : number >= 10 ? 2 : 1, pitch = (DIGIT_COLUMNS + 1) * DOT;
    int left = x + (SQUARE - figures * pitch + DOT) / 2 + (figures - 1) * pitch; /* of the last figure */
    const int top = y + (SQUARE - DIGIT_ROWS * DOT) / 2;
    for (int i = 0; i < figures; i++, number /= 10, left -= pitch) {
        for (int dot = 0; dot < DIGIT_ROWS * DIGIT_COLUMNS; dot++) {
            if (digits[number % 10][dot] == '1') {
                fill(p, top + dot / DIGIT_COLUMNS * DOT, left + dot % DIGIT_COLUMNS * DOT, DOT, DOT, color);
            }
        }
    }
}

/* One square, of this share of its row. */
static void draw_square(const picture *p, int row, int column, int size, double share)
{
    static const uint8_t dark[3] = {8, 48, 107}, white[3] = {255, 255, 255};
    uint8_t color[3];
    for (int c = 0; c < 3; c++) {
        color[c] = (uint8_t)lround(white[c] + share * (dark[c] - white[c]));
    }
    fill(p, row * size, column * size, size, size, color);
    if (size == SQUARE) {
        write_number(p, row * size, column * size, (int)lround(100 * share), share > 0.5 ? white : dark);
    }
}

flim_status flim_confusion_picture(const flim_predictions *predictions, int *side, uint8_t **png, size_t *bytes,
                                   flim_error *err)
{
    const int k = predictions->classes, size = k <= MOST_WITH_NUMBERS ? SQUARE : SMALL_SQUARE;
    picture p = {.side = k * size};
    flim_status status = FLIM_ERROR_MEMORY;
    int64_t *count = flim_alloc((size_t)k * (size_t)k, sizeof *count, err); /* (K,K): true, predicted */
    p.pixel = flim_alloc((size_t)p.side * (size_t)p.side, 3, err);
    if (count && p.pixel) {
        for (int64_t i = 0; i < predictions->n; i++) {
            count[predictions->label[i] * k + predictions->predicted[i]]++;
        }
        for (int row = 0; row < k; row++) {
            int64_t total = 0;
            for (int column = 0; column < k; column++) {
                total += count[row * k + column];
            }
            for (int column = 0; column < k; column++) {
                draw_square(&p, row, column, size, total > 0 ? (double)count[row * k + column] / (double)total : 0);
            }
        }
        *side = p.side;
        status = flim_png_encode(p.side, p.side, p.pixel, png, bytes, err);
    }
    flim_free(count);
    flim_free(p.pixel);
    return status;
}
