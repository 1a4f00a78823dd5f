from chaos.history import Run


def draw(run: Run) -> str:
    return ""
