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
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STDIN, STDOUT, STDERR, CHANNEL, MAX_THEIRS, READ_BYTES = 1 << 16, MAX_REPORT = 1 << 12 };

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

PyDoc_STRVAR(await_report_doc, "await_report(connection, size, timeout_ms) -> bytes");

static PyObject *await_report(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    char content[MAX_REPORT];
    int connection, size, timeout_ms;
    ssize_t received = -1;
    if (!PyArg_ParseTuple(arguments, "iii", &connection, &size, &timeout_ms))
        return NULL;
    if (size > MAX_REPORT) {
        PyErr_SetString(PyExc_ValueError, "a report is not that long");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    struct pollfd ready = {connection, POLLIN, 0};
    if (poll(&ready, 1, timeout_ms) > 0)
        received = recv(connection, content, (size_t)size, MSG_DONTWAIT);
    Py_END_ALLOW_THREADS
    return PyBytes_FromStringAndSize(content, received < 0 ? 0 : received);
}

PyDoc_STRVAR(drain_doc, "drain(descriptor, limit) -> (content, num_cut)");

static PyObject *drain(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    char part[READ_BYTES];
    char *content = NULL;
    size_t kept = 0, cut = 0;
    Py_ssize_t limit;
    int descriptor;
    if (!PyArg_ParseTuple(arguments, "in", &descriptor, &limit))
        return NULL;
    while (!cut) {
        ssize_t size = read(descriptor, part, sizeof part);
        if (size < 0 && errno == EINTR)
            continue;
        if (size <= 0)
            break;
        size_t fits = (size_t)limit - kept < (size_t)size ? (size_t)limit - kept : (size_t)size;
        cut = (size_t)size - fits;
        char *longer = PyMem_Realloc(content, kept + fits + 1);
        if (!longer) {
            PyMem_Free(content);
            return PyErr_NoMemory();
        }
        content = longer;
        memcpy(content + kept, part, fits);
        kept += fits;
    }
    PyObject *result = Py_BuildValue("y#n", content ? content : "", (Py_ssize_t)kept, (Py_ssize_t)cut);
    PyMem_Free(content);
    return result;
}

static PyMethodDef functions[] = {
    {"start_test", start_test, METH_VARARGS, start_doc},
    {"await_report", await_report, METH_VARARGS, await_report_doc},
    {"drain", drain, METH_VARARGS, drain_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_streams", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__streams(void)
{
    return PyModule_Create(&definition);
}
