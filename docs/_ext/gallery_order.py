"""Order of the examples in the gallery: the first steps first."""

_FIRST = (
    "plot_quickstart.py",
    "plot_kan_quickstart.py",
    "plot_column_transformer.py",
    "plot_verify_report.py",
    "plot_grid_search.py",
    "plot_kan_edges.py",
    "kan_resume.py",
    "plot_epsilon_accuracy.py",
    "plot_profiles.py",
    "choose_strategy.py",
)


class Order:
    """Sort key of a file name; names that are not listed come last, by alphabet."""

    def __init__(self, src_dir):
        self.src_dir = src_dir

    def __call__(self, filename):
        return (_FIRST.index(filename) if filename in _FIRST else len(_FIRST), filename)
