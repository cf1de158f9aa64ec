//: tries: has the compiler instantiate templates without end
//: task: sum-cpp
//: verdict: compile_error
//: harms: takes a few gigabytes

template <long N, long M> struct Tree {
    static const long value = Tree<N - 1, 2 * M>::value + Tree<N - 1, 2 * M + 1>::value;
};
template <long M> struct Tree<0, M> {
    static const long value = M;
};

int main() { return Tree<26, 1>::value & 1; }
