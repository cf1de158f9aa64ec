/* One look at all entries of a tree, as `scan.py` describes it.
 *
 * Optional: without this module the same is done in Python, which takes about five times as long. Links are not
 * followed, and other file systems not entered. The entries of a folder are in the order of the bytes of their names.
 * Some threads share the work: each gives folders that it meets to those that are idle.
 */
#define _GNU_SOURCE
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
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
        if (!at) {
            errno = ENOMEM;
            return -1;
        }
        to->at = at;
        to->size = size;
    }
    if (length)
        memcpy(to->at + to->used, content, length);
    to->used += length;
    return 0;
}

/* A folder that waits for a thread: its descriptor and path. */
struct task {
    struct task *next;
    int folder;
    struct bytes path;
};

/* What all threads share. `error` is the first `errno`. */
struct walk {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct task *waiting;
    int num_idle, num_waiting, num_busy, error;
    unsigned mount[3];
};

enum { LISTED, LINKED, UNLISTED };

/* What precedes a path and packed entries in the results of a thread. */
struct record {
    size_t path_length, length;
    int kind;
};

struct thread {
    pthread_t id;
    struct walk *walk;
    struct bytes found;
    int depth; /* of `walk_folder` on its stack */
};

enum { MOST_DEEP = 1000 }; /* a deeper tree is for a scan without recursion */

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

static int compare(const void *one, const void *other)
{
    return strcmp(*(char *const *)one, *(char *const *)other);
}

/* Appends the names in a folder, each with its end. */
static int list(DIR *listing, struct bytes *names, size_t *count)
{
    for (;;) {
        errno = 0;
        struct dirent *each = readdir(listing);
        if (!each)
            return errno ? -1 : 0;
        const char *name = each->d_name;
        if (name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2])))
            continue;
        if (append(names, name, strlen(name) + 1))
            return -1;
        ++*count;
    }
}

/* Lists and sorts: an array of pointers into `names`. */
static char **sorted_names(DIR *listing, struct bytes *names, size_t *count)
{
    if (list(listing, names, count))
        return NULL;
    char **order = malloc((*count + 1) * sizeof *order), *next = names->at;
    for (size_t each = 0; order && each < *count; each++, next += strlen(next) + 1)
        order[each] = next;
    if (order)
        qsort(order, *count, sizeof *order, compare);
    return order;
}

static int look(int folder, const char *name, struct bytes *into, struct stat *about)
{
    if (fstatat(folder, name, about, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT ? 0 : -1; /* it has just gone */
    size_t length = strlen(name);
    struct facts facts = {
        about->st_ino,
        (uint64_t)about->st_size,
        about->st_mtim.tv_sec * 1000000000LL + about->st_mtim.tv_nsec,
        about->st_ctim.tv_sec * 1000000000LL + about->st_ctim.tv_nsec,
        about->st_mode,
        (uint32_t)about->st_nlink,
        about->st_uid,
        about->st_gid,
        about->st_rdev,
        (uint16_t)length,
    };
    return append(into, &facts, sizeof facts) || append(into, name, length);
}

static int add(struct thread *thread, const struct bytes *path, const struct bytes *entries, int kind)
{
    struct record record = {path->used, entries->used, kind};
    return append(&thread->found, &record, sizeof record) || append(&thread->found, path->at, path->used) ||
           append(&thread->found, entries->at, entries->used);
}

/* Gives a folder to an idle thread; takes over the descriptor where it returns 1. */
static int hand_over(struct walk *walk, int folder, const struct bytes *path)
{
    int is_taken = 0;
    pthread_mutex_lock(&walk->lock);
    struct task *task = walk->num_waiting < walk->num_idle ? calloc(1, sizeof *task) : NULL;
    if (task && !append(&task->path, path->at, path->used)) {
        task->folder = folder;
        task->next = walk->waiting;
        walk->waiting = task;
        walk->num_waiting++;
        is_taken = 1;
        pthread_cond_signal(&walk->changed);
    } else {
        free(task);
    }
    pthread_mutex_unlock(&walk->lock);
    return is_taken;
}

static int walk_folder(struct thread *thread, int folder, struct bytes *path);

static int walk_below(struct thread *thread, int folder, struct bytes *path)
{
    if (thread->depth >= MOST_DEEP) {
        close(folder);
        errno = EMFILE;
        return -1;
    }
    thread->depth++;
    int failed = walk_folder(thread, folder, path);
    thread->depth--;
    return failed;
}

/* Adds a folder and those below it. Takes over the descriptor; `path` is restored. -1: `errno` is set. */
static int walk_folder(struct thread *thread, int folder, struct bytes *path)
{
    static const struct bytes nothing;
    struct bytes names = {0}, entries = {0}, below = {0};
    char **order = NULL;
    size_t count = 0, before = path->used;
    unsigned mount[3];
    int is_linked = 0, failed = -1;
    DIR *listing = fdopendir(folder);
    if (!listing) {
        close(folder);
        return -1;
    }
    if (get_mount(folder, mount) || memcmp(mount, thread->walk->mount, sizeof mount)) {
        failed = add(thread, path, &nothing, UNLISTED);
        goto done;
    }
    failed = !(order = sorted_names(listing, &names, &count));
    for (size_t each = 0; each < count && !failed; each++) {
        struct stat about = {0};
        failed = look(folder, order[each], &entries, &about);
        is_linked |= !S_ISDIR(about.st_mode) && about.st_nlink > 1;
        if (!failed && S_ISDIR(about.st_mode))
            failed = append(&below, order[each], strlen(order[each]) + 1);
    }
    failed = failed || add(thread, path, &entries, is_linked ? LINKED : LISTED);
    for (const char *each = below.at; !failed && each && each < below.at + below.used; each += strlen(each) + 1) {
        failed = (before && append(path, "/", 1)) || append(path, each, strlen(each));
        int inner = failed ? -1 : openat(folder, each, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (inner >= 0)
            failed = !hand_over(thread->walk, inner, path) && walk_below(thread, inner, path);
        else if (!failed && errno == EACCES)
            failed = add(thread, path, &nothing, UNLISTED);
        else
            failed = failed || (errno != ENOENT && errno != ENOTDIR && errno != ELOOP);
        path->used = before;
    }
    int error;
done:
    error = errno;
    closedir(listing);
    free(order);
    free(names.at);
    free(entries.at);
    free(below.at);
    errno = error;
    return failed ? -1 : 0;
}

/* Walks the folders that wait, until no other thread can add any. */
static void *work(void *given)
{
    struct thread *thread = given;
    struct walk *walk = thread->walk;
    pthread_mutex_lock(&walk->lock);
    for (;;) {
        walk->num_idle++;
        while (!walk->waiting && walk->num_busy)
            pthread_cond_wait(&walk->changed, &walk->lock);
        walk->num_idle--;
        struct task *task = walk->waiting;
        if (!task)
            break;
        walk->waiting = task->next;
        walk->num_waiting--;
        walk->num_busy++;
        pthread_mutex_unlock(&walk->lock);
        int failed = walk_folder(thread, task->folder, &task->path), error = errno;
        free(task->path.at);
        free(task);
        pthread_mutex_lock(&walk->lock);
        walk->num_busy--;
        if (failed && !walk->error)
            walk->error = error ? error : ENOMEM;
    }
    pthread_cond_broadcast(&walk->changed);
    pthread_mutex_unlock(&walk->lock);
    return NULL;
}

enum { MOST_THREADS = 4 };

/* Walks a tree in several threads, of which this is the first. Returns `errno`. */
static int walk_tree(int folder, struct walk *walk, struct thread *threads)
{
    cpu_set_t usable;
    int num_started = 1, num = sched_getaffinity(0, sizeof usable, &usable) ? 1 : CPU_COUNT(&usable);
    int own = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct task *first = calloc(1, sizeof *first);
    if (own < 0 || !first || get_mount(own, walk->mount)) {
        int error = errno;
        close(own);
        free(first);
        return error;
    }
    first->folder = own;
    walk->waiting = first;
    walk->num_waiting = 1;
    for (int each = 0; each < MOST_THREADS; each++)
        threads[each].walk = walk;
    while (num_started < num && num_started < MOST_THREADS &&
           !pthread_create(&threads[num_started].id, NULL, work, &threads[num_started]))
        num_started++;
    work(&threads[0]);
    while (--num_started > 0)
        pthread_join(threads[num_started].id, NULL);
    return walk->error;
}

/* Adds what a thread has found to a mapping and two lists. */
static int add_found(const struct bytes *found, PyObject *folders, PyObject *unlisted, PyObject *linked)
{
    int failed = 0;
    for (const char *at = found->at; at && at < found->at + found->used && !failed;) {
        struct record record;
        memcpy(&record, at, sizeof record);
        at += sizeof record;
        PyObject *path = PyUnicode_DecodeFSDefaultAndSize(at, (Py_ssize_t)record.path_length);
        at += record.path_length;
        PyObject *entries = PyBytes_FromStringAndSize(at, (Py_ssize_t)record.length);
        at += record.length;
        failed = !path || !entries || (record.kind != UNLISTED && PyDict_SetItem(folders, path, entries)) ||
                 (record.kind != LISTED && PyList_Append(record.kind == LINKED ? linked : unlisted, path));
        Py_XDECREF(path);
        Py_XDECREF(entries);
    }
    return failed;
}

static PyObject *scan(PyObject *module, PyObject *given)
{
    (void)module;
    int folder = (int)PyLong_AsLong(given), error;
    if (PyErr_Occurred())
        return NULL;
    struct walk walk = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct thread threads[MOST_THREADS] = {0};
    Py_BEGIN_ALLOW_THREADS
    error = walk_tree(folder, &walk, threads);
    Py_END_ALLOW_THREADS
    PyObject *folders = PyDict_New(), *unlisted = PyList_New(0), *linked = PyList_New(0);
    int failed = !folders || !unlisted || !linked;
    for (int each = 0; each < MOST_THREADS; each++) {
        failed = failed || error || add_found(&threads[each].found, folders, unlisted, linked);
        free(threads[each].found.at);
    }
    failed = failed || PyList_Sort(unlisted) || PyList_Sort(linked);
    PyObject *result = failed ? NULL : PyTuple_Pack(3, folders, unlisted, linked);
    Py_XDECREF(folders);
    Py_XDECREF(unlisted);
    Py_XDECREF(linked);
    if (error && !PyErr_Occurred()) {
        errno = error;
        PyErr_SetFromErrno(PyExc_OSError);
    }
    return result;
}

static PyMethodDef methods[] = {
    {"scan", scan, METH_O, "scan(folder): the fields of a `scan.Scan`."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_scan", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__scan(void)
{
    return PyModule_Create(&definition);
}
