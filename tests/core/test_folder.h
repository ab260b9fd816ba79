/* A test program in a folder of its own.  After cmocka.h. */
#ifndef FLIM_TEST_FOLDER_H
#define FLIM_TEST_FOLDER_H

#include <stdio.h>
#include <stdlib.h>

/* The rest of main: makes the folder (a template of mkdtemp), runs the tests (an array) and removes it with all that is inside. */
#define RUN_IN_FOLDER(folder, tests)                                                                                         \
    (mkdtemp(folder)                                                                                                         \
         ? end_of_folder(folder, _cmocka_run_group_tests(#tests, tests, sizeof(tests) / sizeof((tests)[0]), NULL, NULL))     \
         : 1)

static inline int end_of_folder(const char *folder, int failed)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) == 0 ? failed : 1;
}

#endif
