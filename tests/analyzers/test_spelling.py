"""How frames are spelled: the rules of inferno and rustc-demangle, by example."""

from __future__ import annotations

import pytest

from analyzers import rust_symbols, spelling
from pipeline.stacks import Frame


@pytest.mark.parametrize(
    ("symbol", "spelled"),
    [
        ("main", "main"),
        ("f(int, char) const", "f"),
        (
            "std::function<int (int, int)>::operator()(int, int) const",
            "std::function<int (int, int)>::operator",
        ),
        ("net/http.(*Client).Do", "net/http.(*Client).Do"),
        ("v8::(anonymous namespace)::Invoke(int)", "v8::(anonymous namespace)::Invoke"),
        ("{lambda(int)#2}::operator()(int)", "{lambda(int)#2}::operator"),
        ("T::operator->() const", "T::operator->"),
        ("arrayOopDesc::base(BasicType) const", "arrayOopDesc::base"),
        ("a;b", "a:b"),
        ("two\nlines", "two\\nlines"),
    ],
)
def test_argument_lists_go_and_the_rest_stays(symbol: str, spelled: str) -> None:
    assert spelling.spell(Frame(symbol)) == spelled


def test_an_unknown_symbol_is_its_module() -> None:
    assert spelling.spell(Frame("[unknown]", "/usr/lib/libx.so.6")) == "[libx.so.6]"
    assert spelling.spell(Frame("[unknown]", "[vdso]")) == "[[vdso]]"
    assert (
        spelling.spell(Frame("[unknown]", "[unknown]")) == spelling.spell(Frame("[unknown]")) == "[unknown]"
    )


def test_java_names_lose_their_L_in_java_processes_only() -> None:
    frame = Frame("Ljava/io/PrintStream;::print", "/tmp/perf-1.map", "jit")
    assert spelling.speller("java")(frame) == "java/io/PrintStream:::print"
    assert spelling.speller("node")(frame) == "Ljava/io/PrintStream:::print"


def test_links_of_a_java_chain_are_marked_and_dwarf_inlines_are_not() -> None:
    assert spelling.spell(Frame("g", "/tmp/perf-1.map", "inlined")) == "g_[i]"
    assert spelling.spell(Frame("g", "inlined", "inlined")) == "g"


@pytest.mark.parametrize(
    ("symbol", "path"),
    [
        ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
        ("_ZN4testE", "test"),
        ("_ZN3foo3barE.llvm.1234", "foo::bar"),
        ("_ZN4core28_$LT$impl$u20$str$GT$5parse3run17h0123456789abcdefE", None),  # a length that is wrong
        ("core::fmt::write::h0123456789abcdef", "core::fmt::write"),
        (
            "_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$a..B$GT$::f::h0123456789abcdef",
            "<alloc::vec::Vec<T> as a::B>::f",
        ),
        ("run::_$u7b$$u7b$closure$u7d$$u7d$::h0123456789abcdef", "run::_{{closure}}"),
        ("_ZNSt6vectorIiE4sizeEv", None),  # C++
        ("printf", None),
        ("h0123456789abcde", None),  # a hash that is too short
    ],
)
def test_rust_symbols(symbol: str, path: str | None) -> None:
    assert rust_symbols.demangle(symbol) == (symbol if path is None else path)
