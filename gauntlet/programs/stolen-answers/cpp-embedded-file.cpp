//: tries: has the assembler put a file of the host into the program
//: task: token-cpp
//: verdict: compile_error wrong_answer runtime_error
//: harms: may read a file of the host

#include <cstdio>
__asm__(".data\n.global answer\nanswer:\n.incbin \"" CANARY_FILE "\"\n.byte 0\n");
extern "C" const char answer[];
int main() { std::puts(answer); }
