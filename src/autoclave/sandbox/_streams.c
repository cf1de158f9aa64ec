/* The system calls by which the judge starts a test and reads what it printed, for `streams.py`.
 *
 * Optional: without this module they are made one by one from Python, which costs about three times the CPU. Nothing is
 * decided here; every call is made, and every error reported, as the Python of `streams.py` does it.
 */
#define _GNU_SOURCE
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { STDIN, STDOUT, STDERR, CHANNEL, MAX_THEIRS, READ_BYTES = 1 << 16 };
enum { MAX_RUNS = 32, MAX_REPORT = 512, MAX_KILLS = 512, AHEAD_US = 20000 };

/* Whatever a failed step left in errno survives closing what the steps before it had opened. */
static void close_all(const int *descriptors, int count)
{
    int error = errno;
    for (int index = 0; index < count; index++)
        if (descriptors[index] >= 0)
            close(descriptors[index]);
    errno = error;
}

/* A descriptor to read `content` from: a read-only file in memory. */
static int open_input(const char *content, size_t size)
{
    char path[32];
    int memory = memfd_create("stdin", MFD_CLOEXEC);
    if (memory < 0)
        return -1;
    while (size) {
        ssize_t written = write(memory, content, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0) {
            close_all(&memory, 1);
            return -1;
        }
        content += written;
        size -= (size_t)written;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    int reader = open(path, O_RDONLY | O_CLOEXEC);
    close_all(&memory, 1);
    return reader;
}

static int send_order(int connection, const int *descriptors, int count)
{
    union {
        char bytes[CMSG_SPACE(MAX_THEIRS * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec content = {"T", 1};
    struct msghdr message = {.msg_iov = &content, .msg_iovlen = 1, .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
    memcpy(CMSG_DATA(header), descriptors, (size_t)count * sizeof(int));
    ssize_t sent;
    do {
        sent = sendmsg(connection, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == 1 ? 0 : -1;
}

/* The reading ends go to `ours`. */
static int start(int connection, const char *content, size_t size, int channel, int *ours)
{
    int theirs[MAX_THEIRS] = {-1, -1, -1, channel}, pair[2];
    int count = channel < 0 ? CHANNEL : MAX_THEIRS;
    int is_started = (theirs[STDIN] = open_input(content, size)) >= 0;
    for (int stream = STDOUT; is_started && stream <= STDERR; stream++) {
        if (!(is_started = pipe2(pair, O_CLOEXEC) == 0))
            break;
        ours[stream - STDOUT] = pair[0];
        theirs[stream] = pair[1];
        is_started = fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0;
    }
    is_started = is_started && send_order(connection, theirs, count) == 0;
    close_all(theirs, CHANNEL);
    if (!is_started)
        close_all(ours, 2);
    return is_started ? 0 : -1;
}

PyDoc_STRVAR(start_doc, "start_test(connection, stdin, channel) -> (stdout, stderr)");

static PyObject *start_test(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int connection, channel, result, ours[2] = {-1, -1};
    const char *content;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(arguments, "iy#i", &connection, &content, &size, &channel))
        return NULL;
    if (size <= READ_BYTES) {
        result = start(connection, content, (size_t)size, channel, ours);
    } else {
        Py_BEGIN_ALLOW_THREADS
        result = start(connection, content, (size_t)size, channel, ours);
        Py_END_ALLOW_THREADS
    }
    return result < 0 ? PyErr_SetFromErrno(PyExc_OSError) : Py_BuildValue("ii", ours[0], ours[1]);
}

struct printed {
    char *content;
    size_t kept, cut;
};

/* Whether there was memory for what is kept. */
static int drain_into(struct printed *printed, int descriptor, size_t limit)
{
    char part[READ_BYTES];
    while (!printed->cut) {
        ssize_t size = read(descriptor, part, sizeof part);
        if (size < 0 && errno == EINTR)
            continue;
        if (size <= 0)
            break;
        size_t fits = limit - printed->kept < (size_t)size ? limit - printed->kept : (size_t)size;
        printed->cut = (size_t)size - fits;
        char *longer = realloc(printed->content, printed->kept + fits + 1);
        if (!longer)
            return 0;
        printed->content = longer;
        memcpy(longer + printed->kept, part, fits);
        printed->kept += fits;
    }
    return 1;
}

static PyObject *taken(struct printed *printed)
{
    const char *content = printed->content ? printed->content : "";
    PyObject *result = Py_BuildValue("y#n", content, (Py_ssize_t)printed->kept, (Py_ssize_t)printed->cut);
    free(printed->content);
    printed->content = NULL;
    return result;
}

PyDoc_STRVAR(drain_doc, "drain(descriptor, limit) -> (content, num_cut)");

static PyObject *drain(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    struct printed printed = {0};
    Py_ssize_t limit;
    int descriptor;
    if (!PyArg_ParseTuple(arguments, "in", &descriptor, &limit))
        return NULL;
    if (!drain_into(&printed, descriptor, (size_t)limit)) {
        free(printed.content);
        return PyErr_NoMemory();
    }
    return taken(&printed);
}

struct run {
    const char *input, *expected;
    Py_ssize_t input_size, expected_size;
    char report[MAX_REPORT];
    ssize_t report_size;
    int streams[2]; /* -1 once they are read */
    struct printed printed[2];
};

static size_t stripped(const char *content, size_t size)
{
    while (size && (content[size - 1] == ' ' || content[size - 1] == '\n'))
        size--;
    return size;
}

/* Whether it exited with status 0, the first field of a report, and printed what is expected but for blanks at the end. */
static int is_as_expected(const struct run *run)
{
    static const char status[4];
    const struct printed *out = &run->printed[0];
    size_t size = stripped(run->expected, (size_t)run->expected_size);
    return memcmp(run->report, status, sizeof status) == 0 && !out->cut && !run->printed[1].cut
           && stripped(out->content, out->kept) == size && (!size || memcmp(out->content, run->expected, size) == 0);
}

/* Read the report of a test, and what it printed, if it ends in time. Whether there was memory. */
static int finish(struct run *run, int connection, size_t report_size, size_t limit, int timeout_ms)
{
    struct pollfd ready = {connection, POLLIN, 0};
    if (poll(&ready, 1, timeout_ms) > 0)
        run->report_size = recv(connection, run->report, report_size, MSG_DONTWAIT);
    if (run->report_size < 0)
        run->report_size = 0;
    if ((size_t)run->report_size < report_size)
        return 1;
    int is_read = drain_into(&run->printed[0], run->streams[0], limit)
                  && drain_into(&run->printed[1], run->streams[1], limit);
    close_all(run->streams, 2);
    run->streams[0] = run->streams[1] = -1;
    return is_read;
}

static long microseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

/* Whether a file has the content that it had, in which the kernel counts the processes that it killed. */
static int is_unchanged(int kills, const char *content, ssize_t size)
{
    char now[MAX_KILLS];
    return kills == -1 || (size > 0 && pread(kills, now, sizeof now, 0) == size && memcmp(now, content, (size_t)size) == 0);
}

PyDoc_STRVAR(run_tests_doc,
             "run_tests(connection, tests, report_size, limit, timeout_ms, kills) -> [(report, stdout, stderr), ...]\n\n"
             "Run tests, each of an input and what it is to print, until one is not as expected. The last one may still "
             "run: then stdout and stderr are descriptors.");

static PyObject *run_tests(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    struct run runs[MAX_RUNS];
    char kills_before[MAX_KILLS];
    int connection, report_size, timeout_ms, kills, num_runs = 0, is_started = 1, is_read = 1, may_go_on = 1;
    Py_ssize_t limit, num_tests;
    PyObject *tests;
    if (!PyArg_ParseTuple(arguments, "iO!inii", &connection, &PyList_Type, &tests, &report_size, &limit, &timeout_ms, &kills))
        return NULL;
    num_tests = PyList_Size(tests) < MAX_RUNS ? PyList_Size(tests) : MAX_RUNS;
    if (report_size > MAX_REPORT || num_tests < 1) {
        PyErr_SetString(PyExc_ValueError, "a report is not that long, or there is no test");
        return NULL;
    }
    for (Py_ssize_t index = 0; index < num_tests; index++) {
        struct run *run = &runs[index];
        if (!PyArg_ParseTuple(PyList_GetItem(tests, index), "y#y#", &run->input, &run->input_size, &run->expected,
                              &run->expected_size))
            return NULL;
        run->streams[0] = run->streams[1] = -1;
        run->report_size = 0;
        memset(run->printed, 0, sizeof run->printed);
    }
    Py_BEGIN_ALLOW_THREADS
    long until = microseconds() + AHEAD_US;
    ssize_t size = pread(kills, kills_before, sizeof kills_before, 0);
    while (may_go_on && num_runs < num_tests && (!num_runs || microseconds() < until)) {
        struct run *run = &runs[num_runs];
        is_started = start(connection, run->input, (size_t)run->input_size, -1, run->streams) == 0;
        if (!is_started)
            break;
        is_read = finish(run, connection, (size_t)report_size, (size_t)limit, timeout_ms);
        may_go_on = is_read && run->streams[0] < 0 && is_as_expected(run) && is_unchanged(kills, kills_before, size);
        num_runs++;
    }
    Py_END_ALLOW_THREADS
    if (!is_started && !num_runs) /* what a later test failed by shows again when it is the first */
        return PyErr_SetFromErrno(PyExc_OSError);
    PyObject *results = is_read ? PyList_New(0) : PyErr_NoMemory();
    for (int index = 0; index < num_runs; index++) {
        struct run *run = &runs[index];
        PyObject *out = run->streams[0] < 0 ? taken(&run->printed[0]) : PyLong_FromLong(run->streams[0]);
        PyObject *err = run->streams[0] < 0 ? taken(&run->printed[1]) : PyLong_FromLong(run->streams[1]);
        PyObject *result = Py_BuildValue("y#NN", run->report, (Py_ssize_t)run->report_size, out, err);
        if (!results || !result || PyList_Append(results, result) < 0) {
            Py_CLEAR(results);
            close_all(run->streams, 2);
        }
        Py_XDECREF(result);
    }
    return results;
}

static PyMethodDef functions[] = {
    {"start_test", start_test, METH_VARARGS, start_doc},
    {"drain", drain, METH_VARARGS, drain_doc},
    {"run_tests", run_tests, METH_VARARGS, run_tests_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_streams", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__streams(void)
{
    return PyModule_Create(&definition);
}
