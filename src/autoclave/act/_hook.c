/* The hook of an agent host: hands an event to the observer, and ends as that says. The same as `client.py`, but it
 * starts in a millisecond.
 *
 *     _hook FOLDER EVENT COMMAND...
 *
 * FOLDER has the socket of the observer. Without an answer, COMMAND takes over, with the same standard input.
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

int main(int argc, char **argv)
{
    if (argc < 4)
        return 1;
    int link = connected(argv[1]);
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
