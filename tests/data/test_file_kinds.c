/* A file that is no HDF5 file is called by its name, with what to do. */
#include <sys/stat.h>

#include "data/file_kind.h"
#include "data/h5_files.h"

static const struct {
    size_t offset, length;
    const char *bytes, *what, *advice;
} kinds[] = {
#define AT(offset, bytes) offset, sizeof(bytes) - 1, bytes
    {AT(0, "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 12345\n"), "Git LFS pointer", "git lfs pull"},
    {AT(0, "/annex/objects/SHA256E-s1--a.h5\n"), "git-annex pointer", "git annex get"},
    {AT(0, "\x1f\x8b\x08\x00\x00\x00\x00\x00"), "compressed with gzip", "gunzip"},
    {AT(0, "BZh91AY&SY"), "compressed with bzip2", "bunzip2"},
    {AT(0, "\xfd\x37zXZ\x00"), "compressed with xz", "unxz"},
    {AT(0, "\x28\xb5\x2f\xfd\x04"), "compressed with zstd", "unzstd"},
    {AT(0, "7z\xbc\xaf\x27\x1c"), "7-Zip", "7z x"},
    {AT(257, "ustar"), "tar archive", "tar xf"},
    {AT(0, "\n <!DOCTYPE HTML><html>"), "web page", "fetch the file itself"},
    {AT(0, "<html lang=en>"), "web page", "fetch the file itself"},
    {AT(0, "<?xml version=\"1.0\"?><Error><Code>AccessDenied"), "XML", "server's error"},
    {AT(0, "\x93NUMPY\x01\x00v\x00"), "NumPy array", "flim_import"},
    {AT(0, "PK\x03\x04\x14\x00\x00\x00\x00\x00\x00\x00!\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0a\x00\x00\x00"
           "counts.npy"),
     "NumPy archive", "flim_import"},
    {AT(0, "PK\x03\x04\x14\x00\x00\x00\x00\x00\x00\x00!\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0a\x00\x00\x00"
           "archive/data.pkl"),
     "PyTorch", "safetensors"},
    {AT(0, "PK\x03\x04\x14\x00\x00\x00\x00\x00\x00\x00!\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0a\x00\x00\x00"
           "flim.h5"),
     "zip archive", "unzip"},
    {AT(0, "\x80\x02\x8a\nl\xfc\x9c"), "pickle", "load it in Python"},
    {AT(0, "MATLAB 5.0 MAT-file, Platform: GLNXA64"), "MATLAB", "-v7.3"},
    {AT(0, "CDF\x01\x00\x00"), "netCDF-3", "nccopy -k nc4"},
    {AT(0, "CDF\x05\x00\x00"), "netCDF-3", "nccopy -k nc4"},
    {AT(0, "\x0e\x03\x13\x01"), "HDF4", "h4toh5"},
    {AT(0, "II*\0\x08\x00"), "TIFF", "tifffile"},
    {AT(0, "MM\0*\x00\x00"), "TIFF", "tifffile"},
    {AT(0, "II+\0\x08\x00"), "BigTIFF", "tifffile"},
    {AT(32, "\x55\x55"), ".sdt", "flim_import"},
    {AT(0, "PQTTTR\0\0"
           "1.0.00"),
     ".ptu", "flim_import"},
    {AT(0, "PQHISTO\0"), ".phu", "ptufile"},
    {AT(0, "\x70\0\0\0\x1a\0\0\0\x2a"), ".lif", "liffile"},
    {AT(0, "SQLite format 3\0"), "SQLite", "h5py"},
    {AT(0, "PAR1\x15\x04"), "Parquet", "h5py"},
    {AT(0, "FLIMCKPT\x03"), "checkpoint of train_cv", "--resume"},
    {AT(0, "\x10\0\0\0\0\0\0\0{\"a\":1}      "), ".safetensors", "--model"},
    {AT(0, "cell,label\n0,1\n"), "text table", "h5py"},
    {AT(0, "\xef\xbb\xbfzelle;klasse\r\n0;1\r\n"), "text table", "h5py"},
    {AT(0, "{\"cells\": 3}"), "JSON", "docs/file-format.md"},
    {AT(0, "404: Not Found"), "text", NULL},
    {AT(0, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), "zeros", "fetch the file again"},
    {AT(0, "\x89HDF\n\x1a\n\0\0\0"), "text mode", "binary mode"},
    {AT(0, "\xef\xbf\xbdHDF\r\n\x1a\n"), "read and written as text", "as bytes"},
    {AT(0, "\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X"), "macOS", "without ._"},
    {AT(0, "\x01\x02\x03\xfe\xff"), NULL, NULL}, /* nobody knows */
};

static void every_kind_is_named(void **state)
{
    (void)state;
    char path[256];
    snprintf(path, sizeof path, "%s", scratch_path("what.h5"));
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        uint8_t bytes[1024] = {1}; /* binary up to the offset */
        const size_t size = kinds[i].offset + kinds[i].length;
        memcpy(bytes + kinds[i].offset, kinds[i].bytes, kinds[i].length);
        /* cut anywhere: no byte behind the end is looked at (the sanitizers' part), and the file is refused all the same */
        for (size_t cut = 1; cut <= size; cut += cut + 1 < size ? size / 3 + 1 : 1) {
            FILE *f = fopen(path, "wb");
            assert_non_null(f);
            assert_int_equal(fwrite(bytes, 1, cut, f), cut);
            fclose(f);
            open_bad(path, NULL, path, "not an HDF5 file", "no HDF5 signature", NULL);
        }
        FILE *f = fopen(path, "wb");
        assert_int_equal(fwrite(bytes, 1, size, f), size);
        fclose(f);
        open_bad(path, NULL, path, kinds[i].what ? kinds[i].what : "not an HDF5 file", kinds[i].advice, NULL);
    }
}

static void folders_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *inside, *what;
    } folders[] = {{".zgroup", "Zarr"},
                   {".zarray", "Zarr"},
                   {"zarr.json", "Zarr"},
                   {"attributes.json", "N5"},
                   {"splits.json", "a run of train_cv"}};
    char folder[256], file[300];
    snprintf(folder, sizeof folder, "%s", scratch_path("data.zarr"));
    assert_int_equal(mkdir(folder, 0700), 0);
    open_bad(folder, NULL, folder, "a directory: give the files in it", NULL);
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(file, sizeof file, "%s/%s", folder, folders[i].inside);
        FILE *f = fopen(file, "w");
        assert_non_null(f);
        fclose(f);
        open_bad(folder, NULL, folder, folders[i].what, NULL);
        unlink(file);
    }
    snprintf(file, sizeof file, "%s/fifo", folder);
    assert_int_equal(mkfifo(file, 0600), 0);
    open_bad(file, NULL, "something that is no regular file", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_kind_is_named), cmocka_unit_test(folders_are_named)};
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
