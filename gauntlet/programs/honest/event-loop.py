#: tries: computes in an event loop
#: task: sum-slow
#: verdict: accepted

import asyncio


async def number(word):
    await asyncio.sleep(0)
    return int(word)


async def main():
    print(sum(await asyncio.gather(*map(number, input().split()))))


asyncio.run(main())
