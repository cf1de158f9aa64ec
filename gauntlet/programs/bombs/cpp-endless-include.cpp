//: tries: has the compiler read a file without end
//: task: sum-cpp
//: verdict: compile_error

#include "/dev/zero"
#include __FILE__
int main() {}
