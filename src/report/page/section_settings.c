/* The run's own files about how it was made. */
#include "core/alloc.h"
#include "core/file.h"
#include "report/page/sections.h"

enum { MOST_CONFIG = 1 << 20 };

flim_status section_settings_fill(flim_json *values, const report_subject *subject, flim_error *err)
{
    (void)err;
    const report_run *run = subject->run;
    static const char *const files[] = {"config.yaml", "environment.json"};
    flim_json *settings = flim_json_array();
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[REPORT_PATH], *text = NULL;
        size_t count = 0;
        snprintf(path, sizeof path, "%.4000s/%s", run->folder, files[i]);
        if (flim_file_read(path, MOST_CONFIG, &text, &count, NULL) == FLIM_OK) {
            flim_json *file = flim_json_object();
            flim_json_set_string(file, "file", files[i]);
            flim_json_set_string(file, "text", text);
            flim_json_add(settings, file);
            flim_free(text);
        }
    }
    flim_json_set(values, "settings", settings);
    return FLIM_OK;
}
