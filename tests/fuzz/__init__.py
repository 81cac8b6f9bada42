"""The coverage-guided fuzzer: `make fuzz MINUTES=n`, or `python -m tests.fuzz`.

Each target (`targets/`) is one surface that strangers' bytes, or damaged files, come to. It is a function of
the bytes alone, runs in this process, and raises `Finding`, or whatever production should not have raised:

- only the documented errors come out of a parser;
- what was decoded, encoded again, is decoded to the same, and parsers of the same bytes agree about them;
- an input is done with within `MAX_CPU_S`, and within the memory that the process may have.

Inputs come from `corpus/` (made by `python -m tests.fuzz.seeds`, of a few KB, with every finding of the past
under its name) and are mutated by atheris, which sees which lines an input has come to. The unit test
`tests/unit/fuzz/test_corpus.py` plays the corpus without atheris.
"""
