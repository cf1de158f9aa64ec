//: tries: includes files of the host, for their text to be in the program or in the compiler's messages
//: task: token-cpp
//: verdict: compile_error wrong_answer runtime_error
//: harms: may read a file of the host

#include <cstdio>
const char *answer =
#include CANARY_FILE
    ;
int main() { std::puts(answer); }
