#: tries: has a main function, a guard and an exit code
#: task: sum
#: verdict: accepted

import sys


def main():
    print(sum(map(int, sys.stdin.read().split())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
