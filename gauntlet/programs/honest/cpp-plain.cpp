//: tries: the usual solution in C++
//: task: sum-cpp
//: verdict: accepted

#include <iostream>

int main() {
    long long a, b;
    std::cin >> a >> b;
    std::cout << a + b << "\n";
}
