//: tries: has the compiler print what it prints when the host kills it
//: task: sum-cpp
//: verdict: compile_error

static_assert(false, "\ng++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.\n");
