//: tries: ends with exit code 0 in a constructor, before main
//: task: sum-cpp
//: verdict: wrong_answer

#include <cstdlib>

struct Early {
    Early() { std::_Exit(0); }
} early;

int main() { return 1; }
