/* The hot paths of a zygote and of a cell's first process, for the guest's interpreter (confinement "sealed").
 *
 * Optional: without this module the guest does the same in Python (zygote.py, init.py), at about twice the CPU per
 * test. What it saves: between two tests and between two programs no page of the Python heap is written, so none has
 * to be copied after a fork; and ctypes, sockets and the like are not loaded at all.
 *
 * Theory of operation. Each function that serves returns to Python only where Python is needed: `serve_cells` in the
 * first process of a new cell, or for a message that it does not know; `serve_tests` in the process of a test. Both
 * end their process when the judge is gone or when anything of their own fails; the judge sees that as a fault.
 */
#define _GNU_SOURCE
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

enum { MAX_DESCRIPTORS = 4, MAX_ACCOUNT = 256, EXIT_GONE = 0, EXIT_SETUP = 70, EXIT_FAULT = 71, ACCOUNT_PAGE = 4096 };

static const char SETTING_UP[] = "setting up";

/* What init.py unpacks as REPORT, and the account behind it. */
struct report {
    int32_t status;
    double user_s, system_s, wall_s;
    int64_t peak_kib;
    char account[MAX_ACCOUNT];
} __attribute__((packed));

/* What the judge says of a cell before its program: `SCRATCH` and `KERNEL_LIMIT` in loops.py. */
struct scratch {
    uint64_t disk_bytes, num_files, num_limits;
} __attribute__((packed));
struct kernel_limit {
    uint64_t kind, value;
} __attribute__((packed));

/* All that a test can change about /tmp, once its processes are gone: a file takes an inode, and whatever was made,
 * removed or set moves the folder's time of change. */
struct folder_state {
    mode_t mode;
    uid_t user;
    gid_t group;
    off_t size;
    struct timespec accessed, modified, changed;
    fsblkcnt_t free_blocks;
    fsfilcnt_t free_files;
};

struct cell {
    int socket;
    int test_id; /* user and group of tests, or -1 when there is one user only */
    rlim_t cpu_s;
    char scratch[160]; /* mount options of /tmp */
    struct folder_state fresh; /* of /tmp when it was mounted */
    char *account;     /* a page shared with the test */
};

static struct cell the_cell; /* a process serves one cell at most */
static int has_exact_times;  /* two changes of a file never have the same time, if somebody looked between them */

extern pid_t _Fork(void) __attribute__((weak));

static pid_t fork_plainly(void)
{
    /* No fork hooks: `random` is not seeded anew, so every test starts from the same state. */
    return _Fork ? _Fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double seconds_of(struct timeval time)
{
    return (double)time.tv_sec + 1e-6 * (double)time.tv_usec;
}

static void receive_exactly(int socket, void *content, size_t size)
{
    char *next = content;
    while (size) {
        ssize_t part = recv(socket, next, size, MSG_WAITALL);
        if (part < 0 && errno == EINTR)
            continue;
        if (part <= 0)
            _exit(EXIT_GONE);
        next += part;
        size -= (size_t)part;
    }
}

static void send_exactly(int socket, const void *content, size_t size)
{
    if (send(socket, content, size, MSG_NOSIGNAL) != (ssize_t)size)
        _exit(EXIT_GONE);
}

/* One order of the judge: its text, and the descriptors that came along. */
static ssize_t receive_order(int socket, char *order, size_t room, int *descriptors, int *num_descriptors)
{
    union {
        char bytes[CMSG_SPACE(MAX_DESCRIPTORS * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec content = {order, room};
    struct msghdr message = {.msg_iov = &content, .msg_iovlen = 1, .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t size;
    do {
        size = recvmsg(socket, &message, 0);
    } while (size < 0 && errno == EINTR);
    if (size <= 0)
        _exit(EXIT_GONE);
    if (message.msg_flags & MSG_CTRUNC) /* a test without its streams would be misjudged */
        _exit(EXIT_FAULT);
    *num_descriptors = 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
        int count = (int)((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(descriptors + *num_descriptors, CMSG_DATA(part), (size_t)count * sizeof(int));
        *num_descriptors += count;
    }
    return size;
}

/* Never raise a limit that the host set. */
static int lower_limit(int kind, rlim_t value, int keep_hard)
{
    struct rlimit limit;
    if (getrlimit(kind, &limit) < 0)
        return -1;
    limit.rlim_cur = limit.rlim_max != RLIM_INFINITY && limit.rlim_max < value ? limit.rlim_max : value;
    if (!keep_hard)
        limit.rlim_max = limit.rlim_cur;
    return setrlimit(kind, &limit);
}

/* Become the test: own session, the given descriptors and no others, limits on time, no privilege. */
static int enter_test(const struct cell *cell, const int *descriptors, int num_descriptors)
{
    static const uint32_t header[2] = {0x20080522, 0};
    static const uint32_t no_capabilities[6];
    setsid();
    for (int target = 0; target < num_descriptors; target++)
        if (dup2(descriptors[target], target) < 0)
            return -1;
    if (syscall(SYS_close_range, (unsigned)num_descriptors, ~0U, 0) < 0)
        return -1;
    if (lower_limit(RLIMIT_CPU, cell->cpu_s, 0) < 0) /* a backstop; the judge is more precise */
        return -1;
    if (cell->test_id < 0) {
        if (prctl(PR_SET_DUMPABLE, 1) < 0) /* or the judge, an ordinary user, could not read its memory use */
            return -1;
    } else if (syscall(SYS_setresgid, cell->test_id, cell->test_id, cell->test_id) < 0
               || syscall(SYS_setresuid, cell->test_id, cell->test_id, cell->test_id) < 0) {
        return -1;
    }
    if (syscall(SYS_capset, header, no_capabilities) < 0 || chdir("/tmp") < 0)
        return -1;
    memset(cell->account, 0, sizeof SETTING_UP);
    return 0;
}

/* Wait until the test is over, or the judge says so. */
static void await_end(const struct cell *cell, pid_t pid)
{
    int unused[MAX_DESCRIPTORS], num_unused;
    char order[1];
    int handle = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd ready[2] = {{handle, POLLIN, 0}, {cell->socket, POLLIN, 0}};
    if (handle < 0)
        _exit(EXIT_FAULT);
    while (poll(ready, 2, -1) < 0)
        if (errno != EINTR)
            _exit(EXIT_FAULT);
    close(handle);
    if (ready[1].revents)
        receive_order(cell->socket, order, 1, unused, &num_unused); /* whatever it says, the test is over */
}

/* Leave no process but this one; add up what they used. */
static void kill_and_reap(pid_t pid, struct report *report)
{
    struct rusage usage;
    int status;
    int options = WNOHANG | __WALL;
    for (;;) {
        pid_t reaped = wait4(-1, &status, options, &usage);
        if (reaped >= 0 && reaped != pid && options & WNOHANG) { /* there were others, and some may live */
            kill(-1, SIGKILL);
            options = __WALL;
        }
        if (reaped == 0 || (reaped < 0 && errno == EINTR))
            continue;
        if (reaped < 0)
            return;
        if (reaped == pid)
            report->status = status;
        report->user_s += seconds_of(usage.ru_utime);
        report->system_s += seconds_of(usage.ru_stime);
        if (usage.ru_maxrss > report->peak_kib)
            report->peak_kib = usage.ru_maxrss;
    }
}

static void look_at_scratch(struct folder_state *state)
{
    struct stat folder;
    struct statfs system;
    if (stat("/tmp", &folder) < 0 || statfs("/tmp", &system) < 0)
        _exit(EXIT_FAULT);
    memset(state, 0, sizeof *state); /* the gaps, too: states are compared as bytes */
    state->mode = folder.st_mode;
    state->user = folder.st_uid;
    state->group = folder.st_gid;
    state->size = folder.st_size;
    state->accessed = folder.st_atim;
    state->modified = folder.st_mtim;
    state->changed = folder.st_ctim;
    state->free_blocks = system.f_bfree;
    state->free_files = system.f_ffree;
}

static void mount_scratch(struct cell *cell)
{
    if (mount("scratch", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, cell->scratch) < 0)
        _exit(EXIT_FAULT);
    if (has_exact_times)
        look_at_scratch(&cell->fresh);
}

/* A new file system, unless the test has left the old one as it was. */
static void renew_scratch(struct cell *cell)
{
    struct folder_state state;
    if (has_exact_times) {
        look_at_scratch(&state);
        if (memcmp(&state, &cell->fresh, sizeof state) == 0)
            return;
    }
    if (umount2("/tmp", MNT_DETACH) < 0)
        _exit(EXIT_FAULT);
    mount_scratch(cell);
}

/* Linux has such times from version 6.13 on. */
static void look_at_kernel(void)
{
    struct utsname kernel;
    unsigned major, minor;
    if (uname(&kernel) == 0 && sscanf(kernel.release, "%u.%u", &major, &minor) == 2)
        has_exact_times = major > 6 || (major == 6 && minor >= 13);
}

/* Run one test. In its process: true. In the first process: false, after it is over. */
static int run_test(struct cell *cell, const int *descriptors, int num_descriptors)
{
    struct report report = {0};
    memset(cell->account, 0, ACCOUNT_PAGE); /* all of it: a test may write anywhere */
    memcpy(cell->account, SETTING_UP, sizeof SETTING_UP);
    double started = seconds_now();
    pid_t pid = fork_plainly();
    if (pid < 0)
        _exit(EXIT_FAULT);
    if (pid == 0) {
        if (enter_test(cell, descriptors, num_descriptors) < 0)
            _exit(EXIT_SETUP);
        return 1;
    }
    for (int index = 0; index < num_descriptors; index++)
        close(descriptors[index]);
    await_end(cell, pid);
    kill_and_reap(pid, &report);
    report.wall_s = seconds_now() - started;
    memcpy(report.account, cell->account, MAX_ACCOUNT);
    renew_scratch(cell);
    send_exactly(cell->socket, &report, sizeof report);
    return 0;
}

PyDoc_STRVAR(lower_limit_doc, "lower_limit(kind, value, keep_hard)\n\n"
                              "Set a resource limit of this process, never above what the host set.");

static PyObject *lower_limit_(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int kind, keep_hard;
    unsigned long long value;
    if (!PyArg_ParseTuple(arguments, "iKp", &kind, &value, &keep_hard))
        return NULL;
    if (lower_limit(kind, (rlim_t)value, keep_hard) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(begin_cell_doc, "begin_cell(socket, test_id) -> bytes\n\n"
                             "Become the first process of a cell: take the settings, confine, and take the content.");

static PyObject *begin_cell(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    struct cell *cell = &the_cell;
    struct scratch scratch;
    struct kernel_limit limit;
    unsigned char size[4];
    if (!PyArg_ParseTuple(arguments, "ii", &cell->socket, &cell->test_id))
        return NULL;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0)
        _exit(EXIT_FAULT);
    receive_exactly(cell->socket, &scratch, sizeof scratch);
    cell->account = mmap(NULL, ACCOUNT_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (cell->account == MAP_FAILED)
        _exit(EXIT_FAULT);
    unsigned owner = cell->test_id < 0 ? (unsigned)getuid() : (unsigned)cell->test_id;
    snprintf(cell->scratch, sizeof cell->scratch, "mode=0700,uid=%u,gid=%u,size=%llu,nr_inodes=%llu", owner, owner,
             (unsigned long long)scratch.disk_bytes, (unsigned long long)scratch.num_files);
    mount_scratch(cell);
    while (scratch.num_limits--) {
        receive_exactly(cell->socket, &limit, sizeof limit);
        if (limit.kind == RLIMIT_NPROC && cell->test_id < 0)
            limit.value += 2; /* the zygote and this one count as well */
        if (limit.kind == RLIMIT_CPU)
            cell->cpu_s = limit.value;
        else if (lower_limit((int)limit.kind, limit.value, 0) < 0)
            _exit(EXIT_FAULT);
    }
    receive_exactly(cell->socket, size, sizeof size);
    size_t num_bytes = (size_t)size[0] << 24 | (size_t)size[1] << 16 | (size_t)size[2] << 8 | size[3];
    PyObject *content = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)num_bytes);
    if (content)
        receive_exactly(cell->socket, PyBytes_AsString(content), num_bytes);
    return content;
}

PyDoc_STRVAR(serve_tests_doc, "serve_tests()\n\n"
                              "Say that the program is prepared, and run tests until the judge is gone. Returns in the "
                              "process of each test, and only there.");

static PyObject *serve_tests(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    static const char prepared[4]; /* an empty block: no complaint */
    int descriptors[MAX_DESCRIPTORS], num_descriptors;
    char order[1];
    send_exactly(the_cell.socket, prepared, sizeof prepared);
    do {
        receive_order(the_cell.socket, order, 1, descriptors, &num_descriptors);
    } while (order[0] != 'T' || !run_test(&the_cell, descriptors, num_descriptors));
    Py_RETURN_NONE;
}

PyDoc_STRVAR(tell_doc, "tell(account)\n\nLeave an account (bytes) of how the test ended.");

static PyObject *tell(PyObject *Py_UNUSED(module), PyObject *account)
{
    Py_ssize_t size = PyBytes_Size(account);
    if (size < 0)
        return NULL;
    memcpy(the_cell.account, PyBytes_AsString(account), (size_t)(size < MAX_ACCOUNT ? size : MAX_ACCOUNT));
    Py_RETURN_NONE;
}

/* Kill a cell and wait for the end of its first process. */
static int32_t end_cell(pid_t cell)
{
    int status = 0;
    kill(cell, SIGKILL);
    while (waitpid(cell, &status, 0) < 0)
        if (errno != EINTR)
            break;
    return status;
}

PyDoc_STRVAR(serve_cells_doc, "serve_cells(control, judge, flags)\n\n"
                              "Make and end cells. Returns (descriptor, runner) in the first process of a new cell, "
                              "and a message (bytes) that is neither in the zygote.");

static PyObject *serve_cells(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    static char message[1 << 18];
    static pid_t cell;
    int control, judge, descriptors[MAX_DESCRIPTORS], num_descriptors;
    long flags;
    if (!PyArg_ParseTuple(arguments, "iil", &control, &judge, &flags))
        return NULL;
    look_at_kernel();
    for (;;) {
        struct pollfd ready[2] = {{judge, POLLIN, 0}, {control, POLLIN, 0}};
        if (poll(ready, 2, -1) < 0 && errno != EINTR)
            _exit(EXIT_FAULT);
        if (ready[0].revents)
            _exit(EXIT_GONE);
        if (!ready[1].revents)
            continue;
        ssize_t size = receive_order(control, message, sizeof message, descriptors, &num_descriptors);
        if (message[0] == 'O' && size == 2 && num_descriptors == 1) {
            cell = (pid_t)syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
            if (cell == 0) {
                close(control);
                close(judge);
                return Py_BuildValue("ii", descriptors[0], (int)(unsigned char)message[1]);
            }
            int32_t number = cell < 0 ? -errno : cell;
            close(descriptors[0]);
            send_exactly(control, &number, sizeof number);
        } else if (message[0] == 'C' && size == 1) {
            int32_t status = cell > 0 ? end_cell(cell) : 0;
            cell = 0;
            send_exactly(control, &status, sizeof status);
        } else {
            return PyBytes_FromStringAndSize(message, size);
        }
    }
}

/* Where the interpreter's code and constants are mapped: all clean file mappings around a function of it. */
static int find_code(uintptr_t *start, uintptr_t *end)
{
    char line[4096], mode[8], name[4096], wanted[4096] = "";
    unsigned long from, to, inside = (unsigned long)(uintptr_t)&PyObject_Call;
    FILE *maps;
    *start = *end = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (!(maps = fopen("/proc/self/maps", "re")))
            return -1;
        while (fgets(line, sizeof line, maps)) {
            name[0] = 0;
            if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %4095s", &from, &to, mode, name) < 3)
                continue;
            if (pass == 0 && from <= inside && inside < to)
                memcpy(wanted, name, sizeof wanted);
            if (pass == 0 || !wanted[0] || strcmp(name, wanted) != 0 || mode[1] == 'w')
                continue;
            if (*end && *end != from)
                break; /* a gap: what follows is something else */
            *start = *start ? *start : from;
            *end = to;
        }
        fclose(maps);
    }
    return *end ? 0 : -1;
}

PyDoc_STRVAR(use_huge_pages_doc, "use_huge_pages() -> number of bytes\n\n"
                                 "Put the interpreter's code into huge pages, so that a fork need not map it anew page by page.");

/* A forked process finds file mappings empty and faults them in again, some forty times per test; anonymous huge pages
 * are inherited as they are. What does not fill a huge page stays where it is. */
static PyObject *use_huge_pages(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    const uintptr_t huge = 2 << 20;
    uintptr_t start, end;
    if (find_code(&start, &end) < 0)
        return PyLong_FromLong(0);
    start = (start + huge - 1) & ~(huge - 1);
    end &= ~(huge - 1);
    if (start >= end)
        return PyLong_FromLong(0);
    size_t size = end - start;
    char *room = mmap(NULL, size + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return PyErr_SetFromErrno(PyExc_OSError);
    char *copy = (char *)(((uintptr_t)room + huge - 1) & ~(huge - 1));
    if (madvise(copy, size, MADV_HUGEPAGE) == 0) {
        memcpy(copy, (const void *)start, size);
        if (mprotect(copy, size, PROT_READ | PROT_EXEC) == 0
            && mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)start) != MAP_FAILED) {
            munmap(room, (size_t)(copy - room));
            munmap(copy + size, huge - (size_t)(copy - room));
            return PyLong_FromSize_t(size);
        }
    }
    munmap(room, size + huge);
    return PyLong_FromLong(0);
}

PyDoc_STRVAR(syscall_doc, "syscall(number, *arguments)\n\n"
                          "A raw system call; arguments are integers, bytes or None. Raises OSError.");

static PyObject *raw_syscall(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    long values[7] = {0};
    Py_ssize_t count = PyTuple_Size(arguments);
    if (count < 1 || count > 7) {
        PyErr_SetString(PyExc_TypeError, "syscall takes a number and up to six arguments");
        return NULL;
    }
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *argument = PyTuple_GetItem(arguments, index);
        if (argument == Py_None)
            continue;
        if (PyBytes_Check(argument)) {
            values[index] = (long)PyBytes_AsString(argument);
            continue;
        }
        values[index] = (long)PyLong_AsUnsignedLongMask(argument);
        if (PyErr_Occurred())
            return NULL;
    }
    long result = syscall(values[0], values[1], values[2], values[3], values[4], values[5], values[6]);
    return result < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromLong(result);
}

static PyMethodDef functions[] = {
    {"serve_cells", serve_cells, METH_VARARGS, serve_cells_doc},
    {"begin_cell", begin_cell, METH_VARARGS, begin_cell_doc},
    {"serve_tests", serve_tests, METH_NOARGS, serve_tests_doc},
    {"tell", tell, METH_O, tell_doc},
    {"lower_limit", lower_limit_, METH_VARARGS, lower_limit_doc},
    {"syscall", raw_syscall, METH_VARARGS, syscall_doc},
    {"use_huge_pages", use_huge_pages, METH_NOARGS, use_huge_pages_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_cell", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__cell(void)
{
    return PyModule_Create(&definition);
}
