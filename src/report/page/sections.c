/* The sections of the page, in its order. */
#include "report/page/sections.h"

const report_section report_sections_of_all[] = {
    {"overlay", "The runs together", section_overlay_applies, section_overlay_fill},
    {"comparison", "The runs against each other", section_comparison_applies, section_comparison_fill},
};
const size_t report_n_sections_of_all = sizeof report_sections_of_all / sizeof report_sections_of_all[0];

const report_section report_sections_of_run[] = {
    {"summary", "Summary", NULL, section_summary_fill},
    {"metrics", "Metrics of the test parts", NULL, section_metrics_fill},
    {"baselines", "The network against simple models", section_baselines_applies, section_baselines_fill},
    {"curves", "ROC, precision and recall", NULL, section_curves_fill},
    {"confusion", "Confusion matrix", NULL, section_confusion_fill},
    {"calibration", "Calibration", NULL, section_calibration_fill},
    {"learning", "Learning curves", section_learning_applies, section_learning_fill},
    {"groups", "Groups", section_groups_applies, section_groups_fill},
    {"decays", "Decays and phasors", section_decays_applies, section_decays_fill},
    {"gallery", "Most confident errors", section_gallery_applies, section_gallery_fill},
    {"making", "How the run was made", NULL, section_making_fill},
};
const size_t report_n_sections_of_run = sizeof report_sections_of_run / sizeof report_sections_of_run[0];
