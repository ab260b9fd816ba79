/* The sections of the page, in its order. */
#include "report/page/sections.h"

const report_section report_sections_of_all[] = {
    {"overlay", "The runs together", section_overlay_applies, true, section_overlay_fill},
    {"comparison", "The runs against each other", section_comparison_applies, false, section_comparison_fill},
};
const size_t report_n_sections_of_all = sizeof report_sections_of_all / sizeof report_sections_of_all[0];

const report_section report_sections_of_run[] = {
    {"summary", "Summary", NULL, false, section_summary_fill},
    {"metrics", "Metrics of the test sets", NULL, false, section_metrics_fill},
    {"baselines", "The network against simple models", section_baselines_applies, false, section_baselines_fill},
    {"curves", "ROC, precision and recall", NULL, false, section_curves_fill},
    {"confusion", "Confusion matrix", NULL, false, section_confusion_fill},
    {"calibration", "Calibration", NULL, false, section_calibration_fill},
    {"learning", "Learning curves", section_learning_applies, true, section_learning_fill},
    {"groups", "Groups", section_groups_applies, false, section_groups_fill},
    {"decays", "Decays and phasors", section_decays_applies, false, section_decays_fill},
    {"embeddings", "What the network sees: principal components", section_embeddings_applies, false, section_embeddings_fill},
    {"errors", "What separates wrong from right cells", section_errors_applies, false, section_errors_fill},
    {"gallery", "Most confident errors", section_gallery_applies, false, section_gallery_fill},
    {"making", "How the run was made", NULL, true, section_making_fill},
};
const size_t report_n_sections_of_run = sizeof report_sections_of_run / sizeof report_sections_of_run[0];
