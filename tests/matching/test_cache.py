"""What is remembered, and what is forgotten first."""

from concurrent.futures import ThreadPoolExecutor

from normmatch.matching.matcher import LRUCache


def test_the_least_recently_used_is_forgotten() -> None:
    memory = LRUCache(2)
    memory.keep({"a": 1, "b": 2})
    assert memory.find(["a", "c"]) == {"a": 1}  # a is used
    memory.keep({"c": 3})
    assert memory.find(["a", "b", "c"]) == {"a": 1, "c": 3}
    memory.keep({"a": 4, "d": 5})  # kept anew is used, too
    assert memory.find("abcd") == {"a": 4, "d": 5}


def test_more_than_fit_leaves_the_last() -> None:
    memory = LRUCache(2)
    memory.keep(dict.fromkeys(range(5), True))
    assert list(memory.find(range(5))) == [3, 4]
    nothing = LRUCache(0)
    nothing.keep({1: 1})
    assert nothing.find([1]) == {}


def test_threads_share_it() -> None:
    memory = LRUCache(50)

    def work(start: int) -> bool:
        for i in range(start, start + 2000):
            memory.keep({i % 120: i % 120})
            if any(key != value for key, value in memory.find(range(120)).items()):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    assert len(memory.find(range(120))) == 50
