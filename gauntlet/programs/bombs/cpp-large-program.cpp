//: tries: has the compiler write a program of gigabytes
//: task: sum-cpp
//: verdict: compile_error runtime_error memory_limit wrong_answer
//: harms: writes a few gigabytes

char block[1ll << 31] = {1};

int main() { return block[1 << 30]; }
