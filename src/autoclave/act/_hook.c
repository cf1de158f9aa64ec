/* The client of processes that wait for an agent host. It starts in a millisecond.
 *
 *     _hook FOLDER EVENT COMMAND...
 *
 * FOLDER has the socket of the observer. Hands over an event with what is on standard input, and ends as that says, as
 * `client.py` does. Without an answer, COMMAND takes over, with the same standard input.
 *
 *     _hook FOLDER shell COMMAND...
 *
 * FOLDER has the socket of `resident_shell.py`, which does what COMMAND would do, with the standard streams and the
 * environment of this process. If it has not begun, COMMAND takes over.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PIECE = 1 << 16 };

static int write_all(int to, const char *content, size_t length)
{
    while (length) {
        ssize_t written = send(to, content, length, MSG_NOSIGNAL); /* the observer may die */
        if (written < 0 && errno == ENOTSOCK)
            written = write(to, content, length);
        if (written < 0)
            return -1;
        content += written;
        length -= (size_t)written;
    }
    return 0;
}

/* All that can be read from a descriptor; NULL where that fails. */
static char *read_all(int from, size_t *length)
{
    size_t size = PIECE;
    char *content = malloc(size);
    *length = 0;
    while (content) {
        ssize_t got = read(from, content + *length, size - *length);
        if (got < 0) {
            free(content);
            return NULL;
        }
        if (!got)
            return content;
        *length += (size_t)got;
        if (*length == size)
            content = realloc(content, size *= 2);
    }
    return NULL;
}

/* A connection to the socket in a folder, whose path may be longer than an address; -1 where nothing listens. */
static int connected(const char *folder)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    int before = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC), link = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (before < 0 || link < 0 || chdir(folder))
        return -1;
    int failed = connect(link, (struct sockaddr *)&address, sizeof address);
    return fchdir(before) || failed ? -1 : link;
}

extern char **environ;

static int send_texts(int link, char **texts)
{
    int failed = 0;
    for (; *texts && !failed; texts++)
        failed = write_all(link, *texts, strlen(*texts) + 1);
    return failed;
}

/* Has a command done elsewhere; its exit code, or -1 where it was not begun. */
static int do_there(int link, char **command, int count)
{
    char number[16];
    union {
        char space[CMSG_SPACE(3 * sizeof(int))];
        struct cmsghdr header;
    } streams = {.header = {CMSG_LEN(3 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    memcpy(CMSG_DATA(&streams.header), (int[]){0, 1, 2}, 3 * sizeof(int));
    struct iovec content = {number, (size_t)snprintf(number, sizeof number, "%d\n", count)};
    struct msghdr message = {
        .msg_iov = &content, .msg_iovlen = 1, .msg_control = &streams, .msg_controllen = sizeof streams.space};
    size_t answered = 0;
    char *answer = NULL;
    if (sendmsg(link, &message, MSG_NOSIGNAL) > 0 && !send_texts(link, command) && !send_texts(link, environ) &&
        !shutdown(link, SHUT_WR))
        answer = read_all(link, &answered);
    if (!answer || !answered)
        return -1;
    if (answered > 1)
        return (unsigned char)answer[1];
    fputs("autoclave: the process that ran the command has died; `autoclave act list` tells what it did\n", stderr);
    return 125;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 1;
    int link = connected(argv[1]);
    if (link >= 0 && !strcmp(argv[2], "shell")) {
        int code = do_there(link, argv + 3, argc - 3);
        if (code >= 0)
            return code;
        close(link);
        link = -1;
    }
    if (link < 0) {
        execv(argv[3], argv + 3);
        perror(argv[3]);
        return 1;
    }
    size_t length = 0, answered = 0;
    char *content = read_all(STDIN_FILENO, &length), *answer = NULL;
    if (content && !write_all(link, argv[2], strlen(argv[2])) && !write_all(link, "\n", 1) &&
        !write_all(link, content, length) && !shutdown(link, SHUT_WR))
        answer = read_all(link, &answered);
    if (!answer || !answered) { /* the observer has died */
        int again = memfd_create("input", 0);
        if (again >= 0 && content && !write_all(again, content, length) && !lseek(again, 0, SEEK_SET) &&
            dup2(again, STDIN_FILENO) == STDIN_FILENO)
            execv(argv[3], argv + 3);
        perror(argv[3]);
        return 1;
    }
    write_all(STDERR_FILENO, answer + 1, answered - 1);
    return answer[0] - '0';
}
