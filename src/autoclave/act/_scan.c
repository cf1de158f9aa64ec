/* One look at all entries of a tree, for `scan.py`.
 *
 * Optional: without this module the same is done in Python, which takes about five times as long. Links are not
 * followed, and other file systems not entered.
 */
#define _GNU_SOURCE
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* As `scan.LAYOUT` reads it: little-endian, without padding. */
struct __attribute__((packed)) facts {
    uint64_t inode, size;
    int64_t mtime_ns, ctime_ns;
    uint32_t mode, num_links, uid, gid;
    uint64_t device;
    uint16_t length;
};

struct bytes {
    char *at;
    size_t used, size;
};

static int append(struct bytes *to, const void *content, size_t length)
{
    if (to->used + length > to->size) {
        size_t size = 2 * (to->used + length) + 4096;
        char *at = realloc(to->at, size);
        if (!at)
            return -1;
        to->at = at;
        to->size = size;
    }
    memcpy(to->at + to->used, content, length);
    to->used += length;
    return 0;
}

struct walk {
    PyObject *found, *unlisted;
    unsigned mount[3];
};

static int get_mount(int folder, unsigned mount[3])
{
    struct statx about;
    unsigned mask = 0;
#ifdef STATX_MNT_ID
    mask = STATX_MNT_ID;
#endif
    if (statx(folder, "", AT_EMPTY_PATH, mask, &about))
        return -1;
    mount[0] = about.stx_dev_major;
    mount[1] = about.stx_dev_minor;
#ifdef STATX_MNT_ID
    mount[2] = (unsigned)about.stx_mnt_id;
#else
    mount[2] = 0;
#endif
    return 0;
}

static int add_unlisted(struct walk *walk, const struct bytes *path)
{
    PyObject *name = PyUnicode_DecodeFSDefaultAndSize(path->at, (Py_ssize_t)path->used);
    int failed = !name || PyList_Append(walk->unlisted, name);
    Py_XDECREF(name);
    return failed ? -1 : 0;
}

static int look(int folder, const char *name, struct bytes *into, mode_t *mode)
{
    struct stat about;
    if (fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT ? 0 : -1;
    size_t length = strlen(name);
    struct facts facts = {
        about.st_ino,
        (uint64_t)about.st_size,
        about.st_mtim.tv_sec * 1000000000LL + about.st_mtim.tv_nsec,
        about.st_ctim.tv_sec * 1000000000LL + about.st_ctim.tv_nsec,
        about.st_mode,
        (uint32_t)about.st_nlink,
        about.st_uid,
        about.st_gid,
        about.st_rdev,
        (uint16_t)length,
    };
    *mode = about.st_mode;
    if (append(into, &facts, sizeof facts) || append(into, name, length)) {
        errno = ENOMEM;
        return -1;
    }
    return 1;
}

/* Adds a folder and those below it. Takes over the descriptor; `path` is restored. -1: a Python error is set. */
static int walk_folder(struct walk *walk, int folder, struct bytes *path)
{
    struct bytes entries = {0}, below = {0};
    unsigned mount[3];
    int result = -1;
    DIR *listing = fdopendir(folder);
    if (!listing) {
        close(folder);
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    if (get_mount(folder, mount) || memcmp(mount, walk->mount, sizeof mount)) {
        result = add_unlisted(walk, path);
        goto done;
    }
    for (;;) {
        errno = 0;
        struct dirent *each = readdir(listing);
        if (!each)
            break;
        const char *name = each->d_name;
        if (name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2])))
            continue;
        mode_t mode = 0;
        int seen = look(folder, name, &entries, &mode);
        if (seen < 0)
            break;
        if (seen && S_ISDIR(mode) && append(&below, name, strlen(name) + 1)) {
            errno = ENOMEM;
            break;
        }
    }
    if (errno) {
        PyErr_SetFromErrno(PyExc_OSError);
        goto done;
    }
    PyObject *name = PyUnicode_DecodeFSDefaultAndSize(path->at ? path->at : "", (Py_ssize_t)path->used);
    PyObject *content = PyBytes_FromStringAndSize(entries.at, (Py_ssize_t)entries.used);
    int failed = !name || !content || PyDict_SetItem(walk->found, name, content);
    Py_XDECREF(name);
    Py_XDECREF(content);
    if (failed)
        goto done;
    for (const char *each = below.at; each && each < below.at + below.used; each += strlen(each) + 1) {
        size_t before = path->used;
        if ((before && append(path, "/", 1)) || append(path, each, strlen(each))) {
            PyErr_NoMemory();
            goto done;
        }
        int inner = openat(folder, each, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (inner < 0 && errno == EACCES) {
            if (add_unlisted(walk, path))
                goto done;
        } else if (inner < 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP) {
            PyErr_SetFromErrno(PyExc_OSError);
            goto done;
        } else if (inner >= 0 && walk_folder(walk, inner, path)) {
            goto done;
        }
        path->used = before;
    }
    result = 0;
done:
    closedir(listing);
    free(entries.at);
    free(below.at);
    return result;
}

static PyObject *scan(PyObject *module, PyObject *given)
{
    (void)module;
    int folder = (int)PyLong_AsLong(given);
    if (PyErr_Occurred())
        return NULL;
    struct walk walk = {PyDict_New(), PyList_New(0), {0}};
    struct bytes path = {0};
    int failed = !walk.found || !walk.unlisted;
    if (!failed) {
        int own = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        failed = own < 0 || get_mount(own, walk.mount);
        if (failed) {
            PyErr_SetFromErrno(PyExc_OSError);
            if (own >= 0)
                close(own);
        } else {
            failed = walk_folder(&walk, own, &path) != 0;
        }
    }
    free(path.at);
    PyObject *result = failed ? NULL : PyTuple_Pack(2, walk.found, walk.unlisted);
    Py_XDECREF(walk.found);
    Py_XDECREF(walk.unlisted);
    return result;
}

static PyMethodDef methods[] = {
    {"scan", scan, METH_O, "scan(folder): see `scan.scan_in_python`."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_scan", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__scan(void)
{
    return PyModule_Create(&definition);
}
