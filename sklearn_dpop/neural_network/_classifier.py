"""A private Kolmogorov-Arnold network for scikit-learn."""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
import os
import reprlib
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils._param_validation import Interval, Options, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data
from skorch import NeuralNetClassifier  # type: ignore[import-untyped, import-not-found, unused-ignore]
from skorch.dataset import Dataset  # type: ignore[import-untyped, import-not-found, unused-ignore]
from torch import Tensor
from torch.utils.data import DataLoader

from sklearn_dpop._inputs import (
    Bounds,
    bounds_of_columns,
    declared_classes,
    planned_classes,
    planned_shape,
    speechless,
)
from sklearn_dpop.exceptions import PrivacyLeakWarning
from sklearn_dpop.factorization import PrefixSum, Strategy
from sklearn_dpop.privacy._report import (
    ONE_FIT,
    PLANNED,
    PrivacyReport,
    expected_warnings,
    package_versions,
)
from sklearn_dpop.privacy.accounting import Schedule
from sklearn_dpop.privacy.accounting._adjacency import ADJACENCIES
from sklearn_dpop.privacy.accounting._schedule import SAMPLINGS
from sklearn_dpop.release._noise import (
    OPERATING_SYSTEM_SOURCE,
    SEEDED_SOURCE,
    noise_generator,
)

from ._checkpoint import data_tag, load_checkpoint, remove_checkpoint, save_checkpoint
from ._clipped import SMALLEST_CLIP
from ._inputs import (
    PREFIXES,
    bounds_of,
    check_callback,
    check_extra,
    device_of,
    encode_labels,
)
from ._inspect import feature_importances, plot_edges
from ._kan import ACTIVATIONS, KAN
from ._no_guarantee import NoGuarantee
from ._noise import NOISE_SOURCES, check_regenerates
from ._plan import Plan, automatic_lr, make_plan
from ._risk import correlation, gradient_bound, risk_terms
from ._step import is_plain_sgd
from ._training import KEYS, Training, mean_loss_and_accuracy

__all__ = ["KANClassifierDP"]

_MECHANISM = "correlated-noise-gd"
_POSITIVE = Interval(Real, 0, None, closed="neither")
_COUNT = Interval(Integral, 1, None, closed="left")
_PHYSICAL = 1024
_LARGEST = 1e10
# Parameters that say how something is computed, not what.
_HOW_ONLY = (
    "callbacks",
    "checkpoint",
    "device",
    "diagnostics",
    "feature_memory",
    "noise_memory",
    "physical_batch_size",
    "verbose",
)
# Attributes without a trailing underscore that a fit makes.
_OWN = ("_modules", "_optimizers", "_criteria", "_run")
# Splines evaluated at once in prediction.
_CELLS = 2**24
# Seconds between checkpoints within an epoch.
_SAVE_EVERY = 30.0

_ASSUMPTIONS = (
    "the number of records, their number of features, all parameters and all labels listed "
    "are public",
    "one person contributes one record",
    "preprocessing before the estimator uses public constants only and treats each record alone",
    "the guarantee is a theorem about real arithmetic; float32 rounding is outside it",
    "the batches, the noise and everything that was not released stay secret",
    ONE_FIT,
)


def _refused(name: str, reason: str) -> Any:
    """Return a property that says why a method of skorch does not exist here."""

    def refuse(self: KANClassifierDP) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} has no {name}: {reason}")

    return property(refuse)


_OUTSIDE = "it would train outside the schedule that the guarantee is for; use fit"


@dataclass
class _Run:
    """A training that goes on, and what is to be said of it."""

    training: Training
    plan: Plan
    classes: NDArray[Any]
    configuration: str
    report: PrivacyReport | NoGuarantee


class KANClassifierDP(NeuralNetClassifier):  # type: ignore[misc, unused-ignore]
    r"""Differentially private Kolmogorov-Arnold network, trained with correlated noise.

    A network of B-splines on fixed public grids, trained by gradient descent: in every step
    each record's gradient is clipped to `max_grad_norm`, and noise is added that is correlated
    over the steps so that much of it cancels in the weights (arXiv 2605.12648, Algorithm 1).
    The noise is calibrated before a record is read, from public numbers alone.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy budget.  ``inf`` trains without noise and so without a guarantee; None states
        the epsilon that a given `noise_multiplier` certifies.
    delta : float, default=1e-5
        Inside (0, 1); choose it well below ``1 / n_samples``.
    classes : array-like of shape (n_classes,), default=None
        All labels that can occur, declared.  None infers them from y, with a
        :class:`~sklearn_dpop.exceptions.PrivacyLeakWarning`.
    feature_bounds : pair of floats or of sequences, or mapping, default=None
        Public lower and upper bound of the features, for all or for each; for data frames, also
        a mapping from every column's name to its pair.  Values outside are clipped.  None takes
        the extremes of X, with a PrivacyLeakWarning.
    adjacency : {"zero-out", "add-remove", "replace-one"}, default="zero-out"
        Neighbouring relation, see :func:`sklearn_dpop.privacy.account`.
    hidden_width : int or sequence of int, default=32
        Widths of the hidden layers.
    n_basis : int, default=8
        B-splines per input of a layer.
    degree : int, default=3
        Their degree, 0 to 5.
    activation : {"tanh", "sigmoid"}, default="tanh"
        After every hidden layer.
    train_output_layer : bool, default=True
        Whether the last layer is trained, or stays as drawn (as in the paper).
    base_branch : bool, default=False
        Whether to add ``silu`` to the splines of every input.
    center_basis : bool, default=True
        Subtract from the splines their value at the centre of the bounds, a public constant.
        Records then differ more in their gradients, and less of them is clipped.
    max_grad_norm : float, default=0.5
        Norm to which the gradient of a record is clipped, from 1e-30 to 1e10; ``inf`` does not
        clip, for ``epsilon=inf`` only.
    batch_size : int, default=125
        Expected number of records of a step; at most n_samples are used.
    epochs : int, default=10
        Number of epochs of ``ceil(n_samples / batch_size)`` steps.
    lr : float or "auto", default="auto"
        Learning rate.  ``"auto"``, for plain SGD, is such that the noise in every weight has a
        root mean square of half of the weight's initial standard deviation; at most 64, and
        ``lr * max_grad_norm`` at most 32.  It depends on public numbers only, and costs no
        search.  A number is at most 1e10.
    strategy : Strategy, default=None
        Strategy matrix of :mod:`sklearn_dpop.factorization`.  None takes
        ``BIFR(gamma, bandwidth)``.
    gamma : float or "auto", default="auto"
        Share of earlier noise that is cancelled, in [0, 1]; 0 is DP-SGD.  ``"auto"`` minimizes
        the error of the summed gradients at the target, which takes some seconds.
    bandwidth : int, default=4
        Number of random vectors that a step combines.
    sampling : str, default="balls_in_bins"
        How batches are made, see :class:`sklearn_dpop.privacy.Schedule`.
    separation : int, default=None
        See :class:`sklearn_dpop.privacy.Schedule`.
    noise_multiplier : float, default=None
        Standard deviation of the independent noise per unit of clip norm, for
        ``epsilon=None``.
    projection_radius : float, default=None
        Radius of the ball around the initial weights that the weights must not leave.
    noise_memory : {"buffer", "regenerate"}, default="buffer"
        Keep the earlier random vectors, or make them again at every step: slower, less
        memory, the same noise.
    noise_source : {"secure", "fast"}, default="secure"
        A cryptographic generator, or a faster one that is not: torch's, or on CUDA Philox.
    physical_batch_size : int, default=None
        Records handled at once, which bounds the memory; None means 1024.
    feature_memory : int, default=2**28
        Bytes that the splines of the records may take, to be computed once only.
    checkpoint : str or path, default=None
        File to which the training is saved after every epoch, and every 30 seconds.  If it
        exists, `fit` continues the training saved there, with the same noise, if parameters and
        data are the same.  It holds secrets; `fit` removes it at the end.  Not together with
        callbacks: what they remember is not saved.
    diagnostics : bool, default=False
        Keep training losses and shares of clipped records, **outside the guarantee**.
    optimizer : type, default=torch.optim.SGD
        Any torch optimizer, applied to the noisy gradients; ``optimizer__momentum=0.9`` and the
        like set its arguments.
    callbacks : list, default=None
        skorch callbacks.  They get neither records nor losses; those that need them are refused,
        unless they monitor public `validation_data`.
    train_split : None
        Must be None: records that are held out would be used without protection.
    device : str, default="auto"
        ``"auto"`` is CUDA where there is one.
    verbose : int, default=0
        1 shows a progress bar.
    random_state : int, RandomState instance or Generator, default=None
        None draws all randomness with a key from the operating system.  Anything else makes
        the release reproducible and therefore not private, which the report says.
    **kwargs
        ``optimizer__*`` and ``callbacks__*``, as in skorch.

    Attributes
    ----------
    module_ : KAN
        The released network.
    classes_ : ndarray of shape (n_classes,)
        Sorted labels.
    privacy_report_ : PrivacyReport or NoGuarantee
        The guarantee, how it follows from public numbers, and its limits.
    strategy_ : Strategy
        Strategy of the noise.
    noise_multiplier_ : float
        Of the independent noise, per unit of clip norm.
    schedule_ : Schedule
        How records met steps.
    lr_ : float
        Learning rate.
    n_steps_ : int
        Number of planned steps.
    history_ : skorch History
        Epoch, step, epsilon (all of it is spent by the first step) and, with public
        `validation_data`, their loss and accuracy.
    diagnostics_ : list of dict
        With ``diagnostics=True``, private: loss and share of clipped records after every epoch.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, when X has string names.
    feature_importances_ : ndarray of shape (n_features_in_,)
        Size of the effect of every feature, from the released weights.

    See Also
    --------
    sklearn_dpop.ObjPertGDLogisticRegression : A linear classifier, for small data or budgets.

    Notes
    -----
    All steps together have the guarantee, so intermediate weights may be published as well.
    A fit that is interrupted leaves the estimator unfitted: weights between two steps may have
    been updated without noise.

    Every fit is a new release and spends its whole budget: a grid search over 10 candidates
    with 5 folds makes 51 fits, and uses every record in 41 of them.

    References
    ----------
    .. [1] P. Wang et al., "Optimization Risk Bounds for Kolmogorov-Arnold Networks Trained by
       DP-SGD with Correlated Noise", arXiv 2605.12648, 2026.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn_dpop import KANClassifierDP
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> upper = [30, 40, 200, 2600, 0.2, 0.4, 0.5, 0.3, 0.4, 0.1, 3, 5, 25, 550, 0.04,
    ...          0.2, 0.4, 0.1, 0.1, 0.05, 40, 50, 260, 4300, 0.3, 1.1, 1.3, 0.3, 0.7, 0.3]
    >>> clf = KANClassifierDP(
    ...     epsilon=4.0, classes=[0, 1], feature_bounds=([0] * 30, upper), sampling="cyclic",
    ...     gamma=0.5, hidden_width=8, epochs=4, device="cpu").fit(X, y)
    >>> clf.privacy_report_
    PrivacyReport(KANClassifierDP, epsilon=4.0, delta=1e-05, 'zero-out')
    >>> clf.predict_proba(X[:3]).shape
    (3, 2)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "epsilon": [Interval(Real, 0, math.inf, closed="right"), None],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "classes": ["array-like", None],
        "feature_bounds": "no_validation",  # by the network, which says more
        "adjacency": [StrOptions(set(ADJACENCIES))],
        "hidden_width": [_COUNT, list, tuple],
        "n_basis": [_COUNT],
        "degree": [Interval(Integral, 0, 5, closed="both")],
        "activation": [StrOptions(set(ACTIVATIONS))],
        "train_output_layer": ["boolean"],
        "base_branch": ["boolean"],
        "center_basis": ["boolean"],
        # Far from overflow, which would happen before the noise is added.
        "max_grad_norm": [
            Interval(Real, SMALLEST_CLIP, _LARGEST, closed="both"),
            Options(Real, {math.inf}),
        ],
        "batch_size": [_COUNT],
        "epochs": [_COUNT],
        "lr": [Interval(Real, 0, _LARGEST, closed="right"), StrOptions({"auto"})],
        "strategy": [Strategy, None],
        "gamma": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
        "bandwidth": [_COUNT],
        "sampling": [StrOptions(set(SAMPLINGS))],
        "separation": [_COUNT, None],
        "noise_multiplier": [_POSITIVE, None],
        "projection_radius": [_POSITIVE, None],
        "noise_memory": [StrOptions({"buffer", "regenerate"})],
        "noise_source": [StrOptions(set(NOISE_SOURCES))],
        "physical_batch_size": [_COUNT, None],
        "feature_memory": [Interval(Integral, 0, None, closed="left")],
        "checkpoint": [str, os.PathLike, None],
        "diagnostics": ["boolean"],
        "optimizer": [callable],
        "callbacks": [list, tuple, None],
        "device": [str, torch.device],
        "verbose": ["verbose"],
        "random_state": ["random_state", np.random.Generator],
    }

    # What skorch takes as parameters and what is fixed here.
    module = KAN
    dataset = Dataset
    iterator_valid = DataLoader
    predict_nonlinearity = None
    compile = False
    use_caching = False
    torch_load_kwargs = None
    warm_start = False
    # What skorch sets on construction.
    history_: Any = None
    initialized_ = False
    virtual_params_: ClassVar[dict[str, Any]] = {}
    # Of partial_fit; holds secrets.
    _run: _Run | None = None
    # Whether a training of partial_fit was interrupted after it had released a network.
    _spent = False

    fit_loop = _refused("fit_loop", _OUTSIDE)
    run_single_epoch = _refused("run_single_epoch", _OUTSIDE)
    train_step = _refused("train_step", _OUTSIDE)
    train_step_single = _refused("train_step_single", _OUTSIDE)
    validation_step = _refused("validation_step", "no loss of a private record is computed")
    initialize = _refused("initialize", "fit makes the network, when it knows the features")

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        *,
        classes: ArrayLike | None = None,
        feature_bounds: tuple[ArrayLike, ArrayLike]
        | Mapping[str, tuple[float, float]]
        | None = None,
        adjacency: str = "zero-out",
        hidden_width: int | Sequence[int] = 32,
        n_basis: int = 8,
        degree: int = 3,
        activation: str = "tanh",
        train_output_layer: bool = True,
        base_branch: bool = False,
        center_basis: bool = True,
        max_grad_norm: float = 0.5,
        batch_size: int = 125,
        epochs: int = 10,
        lr: float | str = "auto",
        strategy: Strategy | None = None,
        gamma: float | str = "auto",
        bandwidth: int = 4,
        sampling: str = "balls_in_bins",
        separation: int | None = None,
        noise_multiplier: float | None = None,
        projection_radius: float | None = None,
        noise_memory: str = "buffer",
        noise_source: str = "secure",
        physical_batch_size: int | None = None,
        feature_memory: int = 2**28,
        checkpoint: str | os.PathLike[str] | None = None,
        diagnostics: bool = False,
        optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
        callbacks: list[Any] | None = None,
        train_split: None = None,
        device: str = "auto",
        verbose: int = 0,
        random_state: Any = None,
        **kwargs: Any,
    ) -> None:
        # skorch's __init__ would set what it takes as fixed here, and validate.
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.feature_bounds = feature_bounds
        self.adjacency = adjacency
        self.hidden_width = hidden_width
        self.n_basis = n_basis
        self.degree = degree
        self.activation = activation
        self.train_output_layer = train_output_layer
        self.base_branch = base_branch
        self.center_basis = center_basis
        self.max_grad_norm = max_grad_norm
        self.batch_size = batch_size
        self.epochs = epochs
        self.lr = lr
        self.strategy = strategy
        self.gamma = gamma
        self.bandwidth = bandwidth
        self.sampling = sampling
        self.separation = separation
        self.noise_multiplier = noise_multiplier
        self.projection_radius = projection_radius
        self.noise_memory = noise_memory
        self.noise_source = noise_source
        self.physical_batch_size = physical_batch_size
        self.feature_memory = feature_memory
        self.checkpoint = checkpoint
        self.diagnostics = diagnostics
        self.optimizer = optimizer
        self.callbacks = callbacks
        self.train_split = train_split
        self.device = device
        self.verbose = verbose
        self.random_state = random_state
        for name in kwargs:
            check_extra(name)
        self.__dict__.update(kwargs)

    # --- parameters ----------------------------------------------------------------------------

    @classmethod
    def _declared_params(cls) -> list[str]:
        parameters = inspect.signature(cls.__init__).parameters.values()
        return [p.name for p in parameters if p.kind not in (p.VAR_KEYWORD,) and p.name != "self"]

    def _get_param_names(self) -> list[str]:
        extra = (name for name in vars(self) if name.startswith(PREFIXES))
        return sorted([*self._declared_params(), *extra])

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, with those of the optimizer and the callbacks that were given.

        Parameters
        ----------
        deep : bool, default=True
            No parameter has parameters of its own.

        Returns
        -------
        dict
        """
        return {name: getattr(self, name) for name in self._get_param_names()}

    def set_params(self, **params: Any) -> KANClassifierDP:
        """Set parameters for the next fit; a fitted network stays as it is.

        Parameters
        ----------
        **params
            Names as in the constructor, ``optimizer__*`` and ``callbacks__*`` included.

        Returns
        -------
        KANClassifierDP

        Raises
        ------
        ValueError
            For an unknown name.
        """
        declared = self._declared_params()
        for name, value in params.items():
            if name not in declared:
                try:
                    check_extra(name)
                except TypeError as error:
                    raise ValueError(str(error)) from None
            setattr(self, name, value)
        return self

    def _validate_params(self) -> None:
        BaseEstimator._validate_params(self)
        if self.train_split is not None:
            raise ValueError(
                f"train_split={self.train_split!r}: must be None; losses of records that are held "
                f"out are private, and the number of steps is for all records"
            )
        if self.max_grad_norm == math.inf and self.epsilon != math.inf:
            raise ValueError("max_grad_norm=inf: must be finite unless epsilon=inf")
        if self.lr == "auto" and not is_plain_sgd(self.optimizer, self._optimizer_settings()):
            raise ValueError(
                "lr='auto': must be a number unless the optimizer is plain SGD, without momentum "
                "and weight decay"
            )
        if isinstance(self.optimizer, type) and issubclass(self.optimizer, torch.optim.LBFGS):
            raise ValueError(
                f"optimizer={self.optimizer!r}: must take one gradient a step; every evaluation "
                f"of LBFGS would be one more release"
            )
        if self.checkpoint is not None and self.callbacks:
            raise ValueError(
                "checkpoint: not with callbacks; it cannot save what they remember, so a training "
                "that is continued could differ from the one that was interrupted"
            )
        if self.checkpoint is not None and not Path(self.checkpoint).absolute().parent.is_dir():
            raise ValueError(
                f"checkpoint={self.checkpoint!r}: must be a file in a directory that exists"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.classifier_tags.poor_score = True
        return tags

    __repr__ = BaseEstimator.__repr__

    # --- fit -----------------------------------------------------------------------------------

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: Any, y: Any, *, validation_data: tuple[Any, Any] | None = None, **fit_params: Any
    ) -> KANClassifierDP:
        """Release a private network trained on the records ``(X, y)``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features, used in float32.
        y : array-like of shape (n_samples,)
            Labels.
        validation_data : pair (X, y), default=None
            **Public** records, which the guarantee does not protect.  Their mean loss and their
            accuracy are recorded after every epoch, as ``valid_loss`` and ``valid_acc``, and
            skorch callbacks may monitor them, for example to stop early: that is free, and the
            whole epsilon is spent all the same.
        **fit_params
            None; `sample_weight` is refused, since it would change what one record can do.

        Returns
        -------
        KANClassifierDP
            The fitted estimator.

        Raises
        ------
        ValueError
            For invalid parameters or data, and when no accountant certifies the request;
            always before any noise is drawn.
        RuntimeError
            If another thread trains this object, or a callback asks it to.
        TypeError
            For `fit_params`.
        """
        with self._alone(), self._whole():
            self._forget()
            self.__dict__.pop("_spent", None)
            _refuse(fit_params)
            self._check_callbacks(validation_data is not None)
            X, codes, classes = self._records(X, y, self.classes, first=True)
            validation = self._public_records(X, validation_data, classes)
            run = self._start(
                X, codes, classes, validation,
                declared=self.classes is not None, again=self.checkpoint is not None,
            )  # fmt: skip
            with _progress(run.training, bool(self.verbose)) as progress:
                going = True
                while going and not run.training.finished:
                    going = self._run_epoch(run, progress, validation)
            self._finish(run)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self, X: Any, y: Any, classes: ArrayLike | None = None, **fit_params: Any
    ) -> KANClassifierDP:
        """Train for the next one of the planned `epochs`.

        The first call plans all of them, and their whole guarantee is spent from then on.  Every
        call must get the same records.  After each the estimator can be used, and published: the
        guarantee is for the weights after all steps together.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            All records, in the same order in every call.
        y : array-like of shape (n_samples,)
            Labels.
        classes : array-like of shape (n_classes,), default=None
            The labels, declared here where the parameter `classes` is None.
        **fit_params
            None, as in `fit`.

        Returns
        -------
        KANClassifierDP

        Raises
        ------
        ValueError
            If all planned epochs are done; for other records or parameters than in the first
            call; for a network that was pickled in the middle of its training; after a call that
            was interrupted when a network had been released already, unless a checkpoint has
            what is needed to go on; and as in `fit`.  A network that was fitted before stays as
            it is.
        RuntimeError
            As in `fit`.
        TypeError
            For `fit_params`.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn_dpop import KANClassifierDP
        >>> X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
        >>> y = (X[:, 0] > 0).astype(int)
        >>> clf = KANClassifierDP(
        ...     epsilon=2.0, classes=[0, 1], feature_bounds=(-1, 1), sampling="cyclic",
        ...     gamma=0.5, epochs=2, batch_size=50)
        >>> for _ in range(2):
        ...     _ = clf.partial_fit(X, y)
        >>> len(clf.history_), clf.privacy_report_.epsilon
        (2, 2.0)
        >>> clf.partial_fit(X, y)
        Traceback (most recent call last):
        ...
        ValueError: partial_fit: all of the epochs=2 are done; ...
        """
        _refuse(fit_params)
        self._check_callbacks(False)
        with self._alone():
            run = self._run
            if run is None:
                run = self._first(X, y, classes)
            else:
                self._check_again(run, X, y, classes)
            self._go_on(run)
        return self

    def plan(self, n_samples: int, n_features: int) -> PrivacyReport | NoGuarantee:
        """Return the report that a fit to a table of this shape would carry.

        It is computed from public numbers alone: no records, no noise, and nothing is spent.

        Parameters
        ----------
        n_samples : int
            Number of records, at least 1.
        n_features : int
            Number of columns of X, as the classifier gets it; at least 1.

        Returns
        -------
        PrivacyReport
            Its `noise_source` says that it is a plan.  For ``epsilon=inf``, the statement that
            there is no guarantee.

        Raises
        ------
        ValueError
            If `classes` is not declared, for invalid parameters, and when no accountant certifies
            the request.

        Examples
        --------
        >>> from sklearn_dpop import KANClassifierDP
        >>> clf = KANClassifierDP(
        ...     epsilon=2.0, classes=[0, 1], feature_bounds=(-1, 1), sampling="cyclic", gamma=0.5)
        >>> report = clf.plan(n_samples=10_000, n_features=54)
        >>> report.epsilon, report.certificate.schedule.n_samples
        (2.0, 10000)
        """
        self._validate_params()
        n_samples, n_features = planned_shape(n_samples, n_features)
        classes = planned_classes(self.classes)
        n_outputs = 1 if len(classes) == 2 else len(classes)
        declared = self._declared_bounds(n_features, planned=True)
        bounds = (-1.0, 1.0) if declared is None else declared
        # Refuses bad parameters.
        self._make_module(n_features, n_outputs, bounds, torch.Generator(), torch.device("cpu"))
        plan = self._plan(n_samples)
        public = self._public_inputs(classes, True, declared, plan, self._rate(plan))
        return self._report(plan, public | {"n_validation": None}, PLANNED)

    def _first(self, X: Any, y: Any, classes: ArrayLike | None) -> _Run:
        """Plan all epochs of partial_fit, or take them from a checkpoint."""
        if self.initialized_:
            raise ValueError(self._why_ended())
        if self._spent and not (self.checkpoint is not None and Path(self.checkpoint).exists()):
            raise ValueError(
                "partial_fit: an earlier call was interrupted when a network had been released "
                "already, and the noise is gone.  fit, or a clone, starts a new training, which "
                "spends its whole budget again"
            )
        with self._whole():
            self._forget()
            declared = classes if self.classes is None else self.classes
            X, codes, labels = self._records(X, y, declared, first=True)
            _check_same_classes(classes, labels)
            run = self._start(X, codes, labels, None, declared=declared is not None, again=True)
            self.__dict__.pop("_spent", None)
            return run

    def _check_again(self, run: _Run, X: Any, y: Any, classes: ArrayLike | None) -> None:
        """Refuse what differs from the first call; the training can go on afterwards."""
        X, codes, labels = self._records(X, y, self.classes_, first=False)
        _check_same_classes(classes, labels)
        if not run.training.is_of(X, codes):
            raise ValueError(
                "partial_fit: other records than in the first call; the guarantee is for "
                "all epochs on the same records"
            )
        configuration = self._configuration(labels, X.shape, run.plan)
        bounds = self._declared_bounds(X.shape[1])
        if run.configuration != self._identity(configuration, bounds, run.plan):
            raise ValueError(
                "partial_fit: other parameters than in the first call, which planned all epochs"
            )

    def _go_on(self, run: _Run) -> None:
        """Train for one epoch of partial_fit."""
        released = self.initialized_ or run.training.step > 0
        try:
            with self._whole(), _progress(run.training, bool(self.verbose)) as progress:
                going = self._run_epoch(run, progress, None)
                if run.training.finished or not going:
                    self._finish(run)
                else:
                    self._release(run)
                    self._run = run
        except BaseException:
            if released:
                self._spent = True
            raise

    def _why_ended(self) -> str:
        done, planned = len(self.history_), self.schedule_.epochs
        if done < planned:
            return (
                f"partial_fit: {done} of the epochs={planned} are done, but the keys of the noise "
                f"are gone: a training that was stopped early has ended, and they are not "
                f"pickled; checkpoint= keeps them in a file"
            )
        return (
            f"partial_fit: all of the epochs={planned} are done; the guarantee is for no more.  "
            f"fit starts a new training, which spends its whole budget again"
        )

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuse a second training of this object, by another thread or by a callback."""
        token = object()
        if self.__dict__.setdefault("_busy", token) is not token:
            raise RuntimeError(
                f"this {type(self).__name__} is being trained, by another thread or by the fit "
                f"that called a callback; train a clone"
            )
        try:
            yield
        finally:
            self.__dict__.pop("_busy", None)

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """Leave nothing behind if what is inside is interrupted."""
        try:
            yield
        except BaseException:
            # The weights may lack the noise of the step that was interrupted.
            self._forget()
            raise

    def _check_callbacks(self, public: bool) -> None:
        for item in self.callbacks or ():
            check_callback(item[1] if isinstance(item, list | tuple) else item, public)

    def _records(
        self, X: Any, y: Any, declared: ArrayLike | None, *, first: bool
    ) -> tuple[NDArray[np.float32], NDArray[np.intp], NDArray[Any]]:
        """Return features, codes of the labels, and all labels."""
        with speechless():
            X, y = validate_data(self, X, y, dtype=np.float32, order="C", reset=first)
        labels, codes = encode_labels(y, declared)
        return X, codes, labels

    def _public_records(
        self, X: NDArray[np.float32], given: Any, classes: NDArray[Any]
    ) -> tuple[NDArray[np.float32], Tensor] | None:
        if given is None:
            return None
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise ValueError("validation_data: must be a pair (X, y) of public records")
        features, codes, _ = self._records(given[0], given[1], classes, first=False)
        if np.array_equal(features, X):
            raise ValueError(
                "validation_data: these are the private records; what is recorded of them would "
                "be outside the guarantee"
            )
        return features, torch.from_numpy(codes)

    def _start(
        self,
        X: NDArray[np.float32],
        codes: NDArray[np.intp],
        classes: NDArray[Any],
        validation: Any,
        *,
        declared: bool,
        again: bool,
    ) -> _Run:
        """Plan all steps, draw the keys and the network.

        With `again` the training can tell later whether records are these.
        """
        n_outputs = 1 if len(classes) == 2 else len(classes)
        declared_bounds = self._declared_bounds(X.shape[1])
        bounds = bounds_of(X) if declared_bounds is None else declared_bounds
        device = device_of(self.device)
        # Refuses bad parameters before anything is drawn.
        self._make_module(X.shape[1], n_outputs, bounds, torch.Generator(), device)
        plan = self._plan(len(X))
        self.lr_ = self._rate(plan)
        public = self._public_inputs(classes, declared, declared_bounds, plan, self.lr_)
        public["n_validation"] = None if validation is None else len(validation[0])
        self._warn(plan, public, len(X))

        configuration = self._configuration(classes, X.shape, plan)
        identity = self._identity(configuration, declared_bounds, plan)
        saved = None if self.checkpoint is None else load_checkpoint(self.checkpoint)
        if saved is None:
            keys, source = self._draw_keys(configuration)
        else:
            keys = {name: int(saved["keys"][name], 16) for name in KEYS}
            # Whether it was seeded is part of the configuration, which is compared below.
            source = OPERATING_SYSTEM_SOURCE if self.random_state is None else SEEDED_SOURCE
        tag = data_tag(keys["noise"], [X, codes]) if again else None
        if saved is not None:
            _check_saved(saved, identity, tag, self.checkpoint)
        generator = torch.Generator().manual_seed(keys["weights"] % 2**63)
        with self._current_init_context("module"):
            self.module_ = self._make_module(X.shape[1], n_outputs, bounds, generator, device)
        self._initialize_callbacks()
        for _, callback in self.callbacks_:  # as callbacks__* have made them
            check_callback(callback, validation is not None)
        with self._current_init_context("optimizer"):
            self.initialize_optimizer()
        self._initialize_history()
        training = Training(
            self.module_,
            self.optimizer_,
            X,
            codes,
            plan,
            keys,
            tag=tag,
            max_grad_norm=float(self.max_grad_norm),
            noise_source=self.noise_source,
            noise_memory=self.noise_memory,
            projection_radius=self.projection_radius,
            physical_batch_size=self.physical_batch_size or _PHYSICAL,
            feature_memory=self.feature_memory,
            on_grad=self._notify_grad if self.callbacks_ else None,
            saved=saved,
        )
        for row in () if saved is None else saved["history"]:
            self._open_epoch()
            self._record(row)
        if self.diagnostics:
            self.diagnostics_ = [] if saved is None else saved["diagnostics"]
        self.module_.train()
        # Made before callbacks can change parameters.
        report = self._report(plan, public, f"{training.generator}, keyed by {source}")
        self.notify("on_train_begin", X=None, y=None)
        return _Run(training, plan, classes, identity, report)

    def _plan(self, n_samples: int) -> Plan:
        """Return the plan of a training on so many records."""
        schedule = Schedule(
            n_samples=n_samples,
            batch_size=min(self.batch_size, n_samples),
            epochs=self.epochs,
            sampling=self.sampling,
            separation=self.separation,
        )
        plan = make_plan(
            schedule,
            epsilon=self.epsilon,
            delta=self.delta,
            noise_multiplier=self.noise_multiplier,
            strategy=self.strategy,
            gamma=self.gamma,
            bandwidth=self.bandwidth,
            adjacency=self.adjacency,
            verbose=bool(self.verbose),
        )
        if self.noise_memory == "regenerate" and plan.certificate is not None:
            check_regenerates(plan.strategy)
        return plan

    def _rate(self, plan: Plan) -> float:
        return float(automatic_lr(plan, self.max_grad_norm) if self.lr == "auto" else self.lr)

    def _run_epoch(self, run: _Run, progress: Any, validation: Any) -> bool:
        """Take the steps of one epoch; return whether no callback ends the training there."""
        training, end = run.training, run.training.epoch + 1
        saved_at = time.monotonic()
        self._open_epoch()
        self.notify("on_epoch_begin", dataset_train=None, dataset_valid=None)
        while training.epoch < end:
            self.notify("on_batch_begin", batch=None, training=True)
            training.take_step()
            self.notify("on_batch_end", batch=None, training=True)
            progress.update()
            if training.epoch < end and time.monotonic() - saved_at >= _SAVE_EVERY:
                self._save(run)
                saved_at = time.monotonic()
        certificate = run.plan.certificate
        epsilon = math.inf if certificate is None else float(certificate.epsilon)
        self._record({"epoch": end, "step": training.step, "epsilon": epsilon})
        if validation is not None:
            self._score(*validation)
        if self.diagnostics:
            self.diagnostics_.append(training.diagnose())
        try:
            self.notify("on_epoch_end", dataset_train=None, dataset_valid=None)
        except KeyboardInterrupt:
            # How callbacks of skorch end a training.
            if not self.callbacks_:
                raise
            return False
        if not training.finished:
            self._save(run)
        return True

    def _score(self, X: NDArray[np.float32], codes: Tensor) -> None:
        """Record how good the network is for public records."""
        loss, accuracy = mean_loss_and_accuracy(self._logits(X), codes)
        for name, value, sign in (("valid_loss", loss, -1), ("valid_acc", accuracy, 1)):
            before = [row[name] for row in self.history_[:-1] if name in row]
            best = all(sign * value > sign * earlier for earlier in before)
            self._record({name: value, f"{name}_best": best})

    def _save(self, run: _Run) -> None:
        if self.checkpoint is None:
            return
        rows = ({k: v for k, v in row.items() if k != "batches"} for row in self.history_)
        state = run.training.state() | {
            "configuration": run.configuration,
            "history": [row for row in rows if row],  # not that of an epoch that goes on
            "diagnostics": list(getattr(self, "diagnostics_", [])),
        }
        save_checkpoint(self.checkpoint, state)

    def _release(self, run: _Run) -> None:
        """Set what a fitted estimator has."""
        for p in self.module_.parameters():
            p.grad = None
        self.labels_ = run.classes
        self.schedule_ = run.plan.schedule
        self.strategy_ = run.plan.strategy
        self.noise_multiplier_ = run.plan.noise_multiplier
        self.n_steps_ = run.plan.schedule.n_steps
        self.privacy_report_ = run.report
        self.initialized_ = True

    def _finish(self, run: _Run) -> None:
        self.notify("on_train_end", X=None, y=None)
        self.module_.eval()
        self.__dict__.pop("_run", None)
        # Only needed in training.
        del self.optimizer_
        if self.checkpoint is not None:
            remove_checkpoint(self.checkpoint)
        self._release(run)

    def get_params_for_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        """Return what skorch passes on to the optimizer.

        Parameters
        ----------
        *args, **kwargs
            As in skorch.

        Returns
        -------
        tuple
            Positional arguments, and keywords with the learning rate that is used.
        """
        positional, keywords = super().get_params_for_optimizer(*args, **kwargs)
        return positional, {**keywords, "lr": self.lr_}

    def _make_module(
        self,
        n_features: int,
        n_outputs: int,
        bounds: Any,
        generator: torch.Generator,
        device: torch.device,
    ) -> KAN:
        return KAN(
            n_features,
            n_outputs,
            hidden_width=self.hidden_width,
            n_basis=self.n_basis,
            degree=self.degree,
            activation=self.activation,
            train_output_layer=self.train_output_layer,
            base_branch=self.base_branch,
            center_basis=self.center_basis,
            feature_bounds=bounds,
            generator=generator,
            device=device,
        )

    def _draw_keys(self, configuration: Mapping[str, Any]) -> tuple[dict[str, int], str]:
        generator, source = noise_generator(self.random_state, context=configuration)
        return {name: int.from_bytes(generator.bytes(32), "little") for name in KEYS}, source

    def _configuration(
        self, classes: NDArray[Any], shape: tuple[int, ...], plan: Plan
    ) -> dict[str, object]:
        """Return the public configuration that separates the noise of seeded fits."""
        left_out = {*_HOW_ONLY, "random_state", "classes", "optimizer", "strategy"}
        found: dict[str, object] = {
            name: repr(value)
            for name, value in self.get_params().items()
            if name not in left_out and not name.startswith("callbacks__")
        }
        return found | {
            "seeded": self.random_state is not None,
            "optimizer": self._optimizer_name(),
            "strategy": repr(plan.strategy),
            "noise_multiplier": plan.noise_multiplier,
            "classes": [str(label) for label in classes],
            "shape": list(shape),
        }

    def _identity(
        self, configuration: Mapping[str, Any], bounds: Bounds | None, plan: Plan
    ) -> str:
        """Return all by which a training that goes on is recognized; repr cuts long arrays."""
        strategy = {} if plan.certificate is None else plan.certificate.public_inputs()["strategy"]
        return repr((configuration, _stated(bounds), strategy))

    def _optimizer_settings(self) -> dict[str, Any]:
        return {
            name.removeprefix("optimizer__"): value
            for name, value in vars(self).items()
            if name.startswith("optimizer__")
        }

    def _optimizer_name(self) -> str:
        # Never repr, which may show an address.
        return str(getattr(self.optimizer, "__name__", type(self.optimizer).__name__))

    def _open_epoch(self) -> None:
        self.history_.new_epoch()
        self.history_.new_batch()  # one for all steps: skorch's callbacks expect some

    def _record(self, row: Mapping[str, Any]) -> None:
        for name, value in row.items():
            self.history_.record(name, value)

    def _notify_grad(self) -> None:
        self.notify("on_grad_computed", named_parameters=self.module_.named_parameters())

    # --- the report ----------------------------------------------------------------------------

    def _public_inputs(
        self,
        classes: NDArray[Any],
        declared: bool,
        bounds: Bounds | None,
        plan: Plan,
        lr: float,
    ) -> dict[str, Any]:
        width = self.hidden_width
        return {
            "classes": [str(label) for label in classes] if declared else "inferred",
            "n_classes": len(classes),
            "feature_bounds": _stated(bounds),
            "max_grad_norm": float(self.max_grad_norm),
            "expected_batch_size": plan.schedule.expected_batch_size,
            "n_steps": plan.schedule.n_steps,
            "lr": lr,
            "optimizer": self._optimizer_name(),
            "optimizer_params": {
                name: repr(value) for name, value in sorted(self._optimizer_settings().items())
            },
            "hidden_width": [int(m) for m in (width if isinstance(width, Sequence) else [width])],
            "n_basis": int(self.n_basis),
            "degree": int(self.degree),
            "activation": self.activation,
            "train_output_layer": bool(self.train_output_layer),
            "base_branch": bool(self.base_branch),
            "center_basis": bool(self.center_basis),
            "projection_radius": None
            if self.projection_radius is None
            else float(self.projection_radius),
            "diagnostics": bool(self.diagnostics),
        }

    def _declared_bounds(self, n_features: int, *, planned: bool = False) -> Bounds | None:
        """Return the ends of the bounds; None if they are not declared."""
        value = self.feature_bounds
        if value is None:
            return None
        names = vars(self).get("feature_names_in_")
        if planned:  # without records, a mapping is the only source of names
            names = list(value) if isinstance(value, Mapping) else None
            if names is not None and len(names) != n_features:
                raise ValueError(
                    f"feature_bounds: names {len(names)} columns, which must be the "
                    f"n_features={n_features} of the plan"
                )
        return bounds_of_columns("feature_bounds", value, n_features, names)

    def _warn(self, plan: Plan, public: Mapping[str, Any], n_samples: int) -> None:
        if self.batch_size > n_samples:
            warnings.warn(
                f"batch_size={self.batch_size}: every step uses all of the {n_samples} records",
                UserWarning,
                stacklevel=5,
            )
        if plan.certificate is None:
            warnings.warn(
                "epsilon=inf: no noise is added, so there is no guarantee",
                UserWarning,
                stacklevel=5,
            )
            return
        # A seed was the user's explicit choice: the report says what it means, fit is silent.
        for message in expected_warnings(plan.certificate, public, seeded=False):
            leak = "inferred" in message or "outside the guarantee" in message
            warnings.warn(message, PrivacyLeakWarning if leak else UserWarning, stacklevel=5)

    def _report(
        self, plan: Plan, public: Mapping[str, Any], source: str
    ) -> PrivacyReport | NoGuarantee:
        certificate = plan.certificate
        if certificate is None:
            return NoGuarantee(type(self).__name__, self.adjacency, public)
        seeded = self.random_state is not None
        return PrivacyReport(
            mechanism=_MECHANISM,
            estimator=type(self).__name__,
            certificate=certificate,
            public_inputs=public,
            assumptions=_ASSUMPTIONS
            if public["n_validation"] is None
            else (*_ASSUMPTIONS, "the validation records are public"),
            noise_source=source,
            seeded=seeded,
            warnings=expected_warnings(certificate, public, seeded=seeded),
            versions=package_versions(_MECHANISM),
        )

    # --- state ---------------------------------------------------------------------------------

    def _forget(self) -> None:
        """Drop everything that a fit has made."""
        params = set(self._get_param_names())
        for name in [name for name in vars(self) if name not in params]:
            if name.endswith("_") or name in _OWN:
                del self.__dict__[name]

    @property
    def classes_(self) -> NDArray[Any]:
        """Sorted labels."""
        try:
            labels: NDArray[Any] = vars(self)["labels_"]
        except KeyError:
            raise AttributeError(f"this {type(self).__name__} is not fitted yet") from None
        return labels

    def __sklearn_is_fitted__(self) -> bool:
        return bool(self.initialized_)

    @property
    def _default_callbacks(self) -> list[Any]:
        """None: skorch's own record losses and times of private records."""
        return []

    def on_batch_begin(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: skorch's own would keep a record of every batch."""

    def on_epoch_begin(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: `fit` writes the history."""

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(BaseEstimator.__getstate__(self))
        state.pop("_run", None)  # secrets
        state.pop("_busy", None)
        if "module_" in state:
            # Readable where there is no such device; on the CPU the same object.
            module = state["module_"]
            on_cpu = all(b.device.type == "cpu" for b in (*module.parameters(), *module.buffers()))
            state["module_"] = module if on_cpu else copy.deepcopy(module).cpu()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        BaseEstimator.__setstate__(self, state)

    # --- prediction ----------------------------------------------------------------------------

    def infer(self, x: Any, **fit_params: Any) -> Tensor:
        """Return the logits of a batch, as skorch's `forward` asks for them.

        Parameters
        ----------
        x : array or Tensor of shape (batch, n_features)
        **fit_params
            None.

        Returns
        -------
        Tensor of shape (batch, n_outputs)
        """
        like = self.module_.spline_layers[0].weight
        logits: Tensor = self.module_(torch.as_tensor(x, dtype=like.dtype, device=like.device))
        return logits

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Return the logits.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            One logit per class; for two classes, that of ``classes_[1]``.
        """
        check_is_fitted(self)
        with speechless():
            X = validate_data(self, X, dtype=np.float32, order="C", reset=False)
        logits: NDArray[np.float32] = self._logits(X).numpy()
        return logits[:, 0] if logits.shape[1] == 1 else logits

    def _logits(self, X: NDArray[np.float32]) -> Tensor:
        widest = max(layer.n_features for layer in self.module_.spline_layers)
        rows = max(1, _CELLS // widest)
        with torch.no_grad():
            return torch.cat([self.infer(X[i : i + rows]).cpu() for i in range(0, len(X), rows)])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label with the largest logit, for every row of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        scores = self.decision_function(X)
        codes = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[codes]
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Return the probabilities of the classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)

        Notes
        -----
        On tables they are too sure, with noise and without: clipping shortens the gradients of the
        records that the network gets most wrong.  At epsilon = 2 the class predicted for a record
        of Adult or Covertype has a mean probability of 0.88 to 0.91 and is right in 0.77 to 0.86
        of the cases.  ``max_grad_norm=1.0`` brings the two to within 0.02 to 0.04 at the same
        accuracy; on images it did harm (``benchmarks/results/kan_confidence.md``).  A calibration
        fitted to the training records, as by
        :class:`~sklearn.calibration.CalibratedClassifierCV`, would be another release of them;
        one fitted to public records is free.
        """
        scores = torch.from_numpy(self.decision_function(X)).double()
        if scores.ndim == 1:
            scores = torch.stack([torch.zeros_like(scores), scores], dim=1)
        probabilities: NDArray[np.float32] = torch.softmax(scores, dim=1).float().numpy()
        return probabilities

    # --- looking inside: post-processing, free --------------------------------------------------

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """Size of the effect of every feature on the logits, of sum 1.

        The root mean square, over the feature's bounds, of its first-order effect where the other
        features are at the centre of theirs.  Computed from the released weights alone.
        """
        check_is_fitted(self)
        return feature_importances(self.module_)

    def plot_edges(self, feature: int | str, ax: Any = None) -> Any:
        """Draw the learned functions of a feature, and its effect on the logits.

        After plain SGD, without callbacks, a band shows where 95% of the effects would lie of a
        feature of which nothing was learned: what the random initial weights and the noise do by
        themselves, to first order.  What lies inside says nothing about the data.

        Parameters
        ----------
        feature : int or str
            Index, from 0; or name, if the X of `fit` was a data frame.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ValueError
            If there is no such feature.
        ImportError
            If matplotlib is not installed.
        """
        check_is_fitted(self)
        names = list(getattr(self, "feature_names_in_", range(self.n_features_in_)))
        if isinstance(feature, str) and feature in names:
            index = names.index(feature)
        elif isinstance(feature, Integral) and 0 <= feature < self.n_features_in_:
            index = int(feature)
        else:
            named = (
                f"or one of the names {reprlib.repr(names)}"
                if hasattr(self, "feature_names_in_")
                else "the columns of X had no names in fit"
            )
            last = self.n_features_in_ - 1
            raise ValueError(f"feature={feature!r}: must be an index from 0 to {last}, {named}")
        name = names[index] if isinstance(names[index], str) else f"feature {index}"
        labels = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        return plot_edges(
            self.module_, index, name, [str(label) for label in labels], ax, self._weight_noise()
        )

    def _weight_noise(self) -> float | None:
        """Return the standard deviation of the noise in a weight; None where it is not known."""
        public = self.privacy_report_.public_inputs
        if public["optimizer"] != "SGD" or public["optimizer_params"] or self.callbacks_:
            return None  # steps of other lengths than lr
        if not self.noise_multiplier_:
            return 0.0
        energies = PrefixSum(self.n_steps_).row_energies(self.strategy_)
        spread = energies[self.history_[-1]["step"] - 1] ** 0.5
        step = public["lr"] * public["max_grad_norm"] / public["expected_batch_size"]
        return float(step * self.noise_multiplier_ * spread)

    def optimization_risk_terms(
        self, *, margin: float = 1.0, failure_probability: float = 0.01
    ) -> dict[str, Any]:
        r"""Evaluate the terms of the paper's optimization risk bound (Theorem 4.1).

        All of them are public.  They show what a change of a parameter does to the terms; their
        constants and logarithms are unknown, so they say nothing about the size of the risk.
        The theorem is for plain SGD and batches drawn without replacement.

        Parameters
        ----------
        margin : float, default=1.0
            The theorem's separability :math:`\gamma` in (0, 1], unknown in practice.
        failure_probability : float, default=0.01
            :math:`\delta` of the bound on gradients, in (0, 1).

        Returns
        -------
        dict
            ``G_delta``, ``rho_clip``, ``eta_eff``, ``c_eff``, ``lambda``, both noise factors, the
            ``terms`` and their sum ``A_corr``.

        Raises
        ------
        ValueError
            If the theorem is not for this network or noise.
        """
        check_is_fitted(self)
        for name, value in (("margin", margin), ("failure_probability", failure_probability)):
            if not 0.0 < value <= 1.0 or (name == "failure_probability" and value == 1.0):
                raise ValueError(f"{name}={value!r}: must be between 0 and 1")
        layers = self.module_.spline_layers
        trained = any(layer.trained for layer in layers[1:])
        if len(layers) != 2 or layers[-1].out_features != 1 or trained or layers[0].base_branch:
            raise ValueError(
                "the theorem is for two classes, one hidden layer, a fixed output layer and no "
                "base branch"
            )
        width = layers[0].out_features
        # Parameters may have been set anew since the fit.
        public = self.privacy_report_.public_inputs
        return risk_terms(
            gradient_bound=gradient_bound(
                layers[0].basis, self.module_.activation, width, failure_probability
            ),
            max_grad_norm=public["max_grad_norm"],
            noise_multiplier=self.noise_multiplier_,
            correlation=correlation(self.strategy_),
            batch_size=self.schedule_.expected_batch_size,
            n_steps=self.n_steps_,
            lr=public["lr"],
            n_features=self.n_features_in_,
            hidden_width=width,
            margin=margin,
        )


def _stated(bounds: Bounds | None) -> Any:
    return "inferred" if bounds is None else [bound.tolist() for bound in bounds]


def _refuse(fit_params: Mapping[str, Any]) -> None:
    for name in fit_params:
        reason = (
            "it would change how much one record can move a step, which the noise covers"
            if name == "sample_weight"
            else "there is nothing it could be passed on to"
        )
        raise TypeError(f"fit got {name!r}: refused, because {reason}")


def _check_same_classes(given: ArrayLike | None, labels: NDArray[Any]) -> None:
    if given is not None and declared_classes(given).tolist() != labels.tolist():
        raise ValueError(f"classes={given!r}: must be the classes of the training, {labels!r}")


def _check_saved(saved: Mapping[str, Any], configuration: str, tag: str | None, path: Any) -> None:
    if saved["configuration"] != configuration:
        raise ValueError(f"checkpoint={path!r}: made with other parameters or data of other shape")
    if saved["data"] != tag:
        raise ValueError(
            f"checkpoint={path!r}: made with other records; the same noise must not meet them"
        )


def _progress(training: Training, shown: bool) -> Any:
    from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]  # skorch needs it

    return tqdm(
        total=training.schedule.n_steps,
        initial=training.step,
        desc="private steps",
        disable=not shown,
    )
