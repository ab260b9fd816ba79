#include "data/file_kind.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define BYTES(text) text, sizeof(text) - 1

/* What to do, where several kinds need the same. */
#define PACKED "unpack it first, for example "
#define CONVERT "read it with Python and write /counts, /label, /group with h5py (docs/file-format.md)"
#define DOWNLOAD "the download went wrong: fetch the file itself"
#define IMPORT "make a data file of it: flim_import OUT.h5 FILE"
#define SCOPE "export or read it (Python: sdtfile, ptufile, liffile ...) and write /counts with h5py (docs/file-format.md)"

/* Bytes at an offset; the second pattern (may be NULL) has to stand somewhere in the first bytes as well.  The first row that
 * fits counts, so what is special stands before what is general. */
static const struct {
    size_t offset;
    const char *bytes;
    size_t length;
    const char *also;
    const char *what, *advice;
} signatures[] = {
    {0, BYTES("version https://git-lfs.github.com/spec/"), NULL, "a Git LFS pointer, not the file itself",
     "run `git lfs install` once, then `git lfs pull` in the repository"},
    {0, BYTES("version https://hawser"), NULL, "a Git LFS pointer, not the file itself",
     "run `git lfs pull` in the repository"},
    {0, BYTES("/annex/objects/"), NULL, "a git-annex pointer, not the file itself", "run `git annex get FILE`"},
    {0, BYTES("\x89HDF\n\x1a\n"), NULL, "an HDF5 file that was copied in text mode, which damages every file",
     "copy it again in binary mode"},
    {0, BYTES("\x89HDF\r\r\n"), NULL, "an HDF5 file that was copied in text mode, which damages every file",
     "copy it again in binary mode"},
    {0, BYTES("\xef\xbf\xbdHDF"), NULL, "an HDF5 file that was read and written as text, which damages every file",
     "copy it again as bytes"},
    {0, BYTES("\tHDF\r\n"), NULL, "an HDF5 file whose bytes lost their eighth bit on the way",
     "copy it again in binary mode"},
    {0, BYTES("\x0e\x03\x13\x01"), NULL, "an HDF4 file", "convert it: h4toh5 FILE OUT.h5"},
    {0, BYTES("CDF\x01"), NULL, "a netCDF-3 file", "convert it: nccopy -k nc4 FILE OUT.h5"},
    {0, BYTES("CDF\x02"), NULL, "a netCDF-3 file", "convert it: nccopy -k nc4 FILE OUT.h5"},
    {0, BYTES("CDF\x05"), NULL, "a netCDF-3 file", "convert it: nccopy -k nc4 FILE OUT.h5"},
    {0, BYTES("MATLAB 5.0"), NULL, "a MATLAB file of version 5 to 7",
     "load it in MATLAB and save it again with save(..., '-v7.3'), which is HDF5"},
    {0, BYTES("\x93NUMPY"), NULL, "a NumPy array (.npy)", IMPORT},
    {0, BYTES("PK\x03\x04"), ".npy", "a NumPy archive (.npz)", IMPORT},
    {0, BYTES("PK\x03\x04"), "data.pkl", "PyTorch's file (.pt, .pth): weights or tensors",
     "data: torch.load it and write it with h5py; weights: save them as .safetensors"},
    {0, BYTES("PK\x03\x04"), "[Content_Types]", "a spreadsheet or another Office file", CONVERT},
    {0, BYTES("PK\x03\x04"), ".zarray", "a zipped Zarr store",
     "zarr.open it and write its arrays with h5py (docs/file-format.md)"},
    {0, BYTES("PK\x03\x04"), ".zgroup", "a zipped Zarr store",
     "zarr.open it and write its arrays with h5py (docs/file-format.md)"},
    {0, BYTES("PK\x03\x04"), "zarr.json", "a zipped Zarr store",
     "zarr.open it and write its arrays with h5py (docs/file-format.md)"},
    {0, BYTES("PK\x03\x04"), NULL, "a zip archive", PACKED "unzip FILE"},
    {0, BYTES("PK\x05\x06"), NULL, "an empty zip archive", "fetch the file again"},
    {0, BYTES("\x1f\x8b"), NULL, "compressed with gzip", PACKED "gunzip FILE.gz (tar xzf FILE.tar.gz)"},
    {0, BYTES("BZh"), NULL, "compressed with bzip2", PACKED "bunzip2 FILE.bz2"},
    {0,
     BYTES("\xfd"
           "7zXZ"),
     NULL, "compressed with xz", PACKED "unxz FILE.xz"},
    {0, BYTES("\x28\xb5\x2f\xfd"), NULL, "compressed with zstd", PACKED "unzstd FILE.zst"},
    {0, BYTES("\x04\x22\x4d\x18"), NULL, "compressed with lz4", PACKED "unlz4 FILE.lz4"},
    {0, BYTES("7z\xbc\xaf\x27\x1c"), NULL, "a 7-Zip archive", PACKED "7z x FILE"},
    {0, BYTES("Rar!\x1a\x07"), NULL, "a RAR archive", PACKED "unrar x FILE"},
    {257, BYTES("ustar"), NULL, "a tar archive", PACKED "tar xf FILE"},
    {0, BYTES("II*\0"), NULL, "a TIFF image", "tifffile.imread it and write /counts with h5py (docs/file-format.md)"},
    {0, BYTES("MM\0*"), NULL, "a TIFF image", "tifffile.imread it and write /counts with h5py (docs/file-format.md)"},
    {0, BYTES("II+\0"), NULL, "a TIFF image (BigTIFF)",
     "tifffile.imread it and write /counts with h5py (docs/file-format.md)"},
    {0, BYTES("MM\0+"), NULL, "a TIFF image (BigTIFF)",
     "tifffile.imread it and write /counts with h5py (docs/file-format.md)"},
    {32, BYTES("\x55\x55"), NULL, "a Becker & Hickl file (.sdt)", IMPORT}, /* header_valid of its header */
    {0, BYTES("PQTTTR"), NULL, "a PicoQuant file (.ptu)", IMPORT},
    {0, BYTES("PQHISTO"), NULL, "a PicoQuant file (.phu)", SCOPE},
    {0, BYTES("PicoHarp 300"), NULL, "a PicoQuant file (.pt3)", SCOPE},
    {0, BYTES("HydraHarp"), NULL, "a PicoQuant file (.ht3)", SCOPE},
    {0, BYTES("\x70\0\0\0"), NULL, "a Leica file (.lif)", SCOPE},
    {0, BYTES("ZISRAWFILE"), NULL, "a Zeiss file (.czi)", SCOPE},
    {0, BYTES("\xda\xce\xbe\x0a"), NULL, "a Nikon file (.nd2)", SCOPE},
    {0, BYTES("ics_version"), NULL, "an ICS image", SCOPE},
    {128, BYTES("DICM"), NULL, "a DICOM image", CONVERT},
    {344, BYTES("n+1\0"), NULL, "a NIfTI image", CONVERT},
    {0, BYTES("NRRD000"), NULL, "an NRRD image", CONVERT},
    {0, BYTES("\x89PNG\r\n"), NULL, "a PNG image", "an image has no decays: the photon counts are needed"},
    {0, BYTES("\xff\xd8\xff"), NULL, "a JPEG image", "an image has no decays: the photon counts are needed"},
    {0, BYTES("%PDF-"), NULL, "a PDF document", DOWNLOAD},
    {0, BYTES("PAR1"), NULL, "a Parquet table", CONVERT},
    {0, BYTES("ARROW1"), NULL, "an Arrow table", CONVERT},
    {0, BYTES("FEA1"), NULL, "a Feather table", CONVERT},
    {0, BYTES("SQLite format 3"), NULL, "an SQLite database", CONVERT},
    {0, BYTES("RDX2\n"), NULL, "an R file (.RData)", "write it from R with the package rhdf5 or hdf5r"},
    {0, BYTES("RDX3\n"), NULL, "an R file (.RData)", "write it from R with the package rhdf5 or hdf5r"},
    {0, BYTES("FLIMCKPT"), NULL, "a checkpoint of train_cv", "give the data file; checkpoints belong to --resume"},
    {8, BYTES("{\""), NULL, "a .safetensors file: weights", "give it as --model or --init-weights, and the data as --data"},
    {0, BYTES("\x80\x02"), NULL, "a Python pickle", "load it in Python and write it with h5py (docs/file-format.md)"},
    {0, BYTES("\x80\x03"), NULL, "a Python pickle", "load it in Python and write it with h5py (docs/file-format.md)"},
    {0, BYTES("\x80\x04"), NULL, "a Python pickle", "load it in Python and write it with h5py (docs/file-format.md)"},
    {0, BYTES("\x80\x05"), NULL, "a Python pickle", "load it in Python and write it with h5py (docs/file-format.md)"},
    {0, BYTES("\x00\x05\x16\x07"), NULL, "macOS's companion of another file (its name begins with ._)",
     "give the file without ._"},
};

static bool has_text(const uint8_t *start, size_t count, const char *text)
{
    const size_t length = strlen(text);
    for (size_t i = 0; i + length <= count; i++) {
        if (memcmp(start + i, text, length) == 0) {
            return true;
        }
    }
    return false;
}

/* The text begins, after blanks and a byte order mark, with `word` in any case. */
static bool begins(const uint8_t *start, size_t count, const char *word)
{
    size_t at = count >= 3 && memcmp(start, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (at < count && isspace(start[at])) {
        at++;
    }
    for (; *word && at < count && tolower(start[at]) == *word; word++, at++) {
    }
    return *word == '\0';
}

/* Printable characters only, in any encoding that goes on from ASCII. */
static bool is_text(const uint8_t *start, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (start[i] < 0x20 && !isspace(start[i])) {
            return false;
        }
    }
    return count > 0;
}

static bool all_zero(const uint8_t *start, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (start[i]) {
            return false;
        }
    }
    return count > 0;
}

/* Kinds that no fixed bytes tell. */
static bool by_look(const uint8_t *start, size_t count, const char **what, const char **advice)
{
    *advice = CONVERT;
    if (begins(start, count, "<!doctype html") || begins(start, count, "<html")) {
        *what = "a web page (HTML)";
        *advice = "the download gave a page (an error, a log-in) and not the file: fetch the file itself";
    } else if (begins(start, count, "<?xml") || begins(start, count, "<error>")) {
        *what = "XML text";
        *advice = "often a server's error message: look into it, and fetch the file itself";
    } else if (all_zero(start, count)) {
        *what = "empty of content: its first bytes are zeros";
        *advice = "an incomplete copy or download looks like this: fetch the file again";
    } else if (is_text(start, count)) {
        const bool json = begins(start, count, "{") || begins(start, count, "[");
        *what = json ? "JSON or other text"
                : has_text(start, count, ",") || has_text(start, count, "\t") || has_text(start, count, ";")
                    ? "a text table (CSV?)"
                    : "text";
        *advice = json ? "counts must be in an HDF5 file: docs/file-format.md" : CONVERT;
    } else {
        return false;
    }
    return true;
}

bool flim_file_kind(const uint8_t *start, size_t count, char *text, size_t text_size)
{
    const char *what = NULL, *advice = NULL;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof signatures / sizeof signatures[0] && !what; i++) {
        const size_t end = signatures[i].offset + signatures[i].length;
        if (end <= count && memcmp(start + signatures[i].offset, signatures[i].bytes, signatures[i].length) == 0 &&
            (!signatures[i].also || has_text(start, count, signatures[i].also))) {
            what = signatures[i].what;
            advice = signatures[i].advice;
        }
    }
    if (!what && !by_look(start, count, &what, &advice)) {
        return false;
    }
    snprintf(text, text_size, "it is %s; %s", what, advice);
    return true;
}

void flim_folder_kind(const char *path, char *text, size_t text_size)
{
    static const struct {
        const char *file, *what;
    } marks[] = {
        {".zgroup", "a Zarr folder: zarr.open it and write its arrays with h5py (docs/file-format.md)"},
        {".zarray", "a Zarr folder: zarr.open it and write its arrays with h5py (docs/file-format.md)"},
        {"zarr.json", "a Zarr folder: zarr.open it and write its arrays with h5py (docs/file-format.md)"},
        {".zattrs", "a Zarr folder: zarr.open it and write its arrays with h5py (docs/file-format.md)"},
        {"attributes.json", "an N5 folder: read it in Python and write its arrays with h5py (docs/file-format.md)"},
        {"saved_model.pb", "a TensorFlow model: give the data file"},
        {"splits.json", "a run of train_cv: give the data file"},
    };
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        char inside[4096];
        struct stat about;
        const int length = snprintf(inside, sizeof inside, "%s/%s", path, marks[i].file);
        if (length > 0 && (size_t)length < sizeof inside && stat(inside, &about) == 0) {
            snprintf(text, text_size, "%s", marks[i].what);
            return;
        }
    }
    snprintf(text, text_size, "a directory: give the files in it");
}
