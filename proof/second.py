"""The second solver, cvc5, which gets the questions as text from z3."""

from __future__ import annotations

from collections.abc import Iterable

import cvc5
import z3

from proof.logic import Term

LIMIT = 5
"""Seconds for one question."""


def ask(terms: Iterable[Term]) -> str:
    """Asks whether anything satisfies all terms: `sat`, `unsat` or `unknown`."""
    writer = z3.Solver()
    writer.add(*terms)
    solver = cvc5.Solver(cvc5.TermManager())
    solver.setOption("tlimit-per", str(LIMIT * 1000))
    solver.setOption("enum-inst", "true")
    solver.setLogic("ALL")
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, writer.to_smt2(), "question")
    symbols, answer = parser.getSymbolManager(), ""
    while not (command := parser.nextCommand()).isNull():
        answer = str(command.invoke(solver, symbols)).strip() or answer
    # It gives a reason, too: `unknown (TIMEOUT)`.
    return answer.split(" ")[0]
