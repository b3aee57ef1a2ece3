"""Private logistic regression by gradient descent on a perturbed objective."""

from __future__ import annotations

import math
import warnings
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse
from scipy.special import log_expit
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from sklearn_dpop._inputs import declared_classes, planned_classes, planned_shape, speechless
from sklearn_dpop.exceptions import PrivacyLeakWarning
from sklearn_dpop.privacy._calibration import calibrate_objective_perturbation
from sklearn_dpop.privacy._certificate import CALIBRATIONS, ObjectivePerturbationCertificate
from sklearn_dpop.privacy._objective_perturbation import ADJACENCIES
from sklearn_dpop.privacy._report import (
    ONE_FIT,
    PLANNED,
    PrivacyReport,
    expected_warnings,
    package_versions,
)
from sklearn_dpop.release._losses import LogisticLoss, MarginLoss, SmoothedHingeLoss
from sklearn_dpop.release._noise import gaussian_noise, noise_generator
from sklearn_dpop.release._solver import clip_scales, perturbed_gradient_descent, row_norms

__all__ = ["ObjPertGDLogisticRegression"]

_POSITIVE = Interval(Real, 0, None, closed="neither")
_INSIDE_UNIT = Interval(Real, 0, 1, closed="neither")
# Entries of X that the steps of a fit may read without a warning: about a minute.
_MANY_CELLS = 1e11
# A model whose scores all are below this says next to nothing.
_FLAT = 0.1


class ObjPertGDLogisticRegression(ClassifierMixin, BaseEstimator):
    r"""Differentially private logistic regression: one Gaussian draw, plain gradient descent.

    Draw :math:`z \sim N(0, \sigma^2 I)` once, run N steps
    :math:`w_{k+1} = w_k - \eta(\nabla F(w_k) + z)` from :math:`w_0 = 0` on the regularized
    empirical risk :math:`F(w) = \frac1n\sum_i \ell(\langle x_i, w\rangle, y_i) +
    \frac{\mu}{2}|w|^2`, release :math:`w_N` (arXiv 2610.02716).  :math:`\mu, \sigma, N` and
    :math:`\eta` follow from public numbers alone, and the finite iterate that is released
    is the one that is certified: there is no stopping rule.  Several classes are handled
    one-vs-rest with independent noises, and (epsilon, delta) is their total.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Total privacy budget, positive.  ``calibration="corollary"`` needs at most 1.  None
        states the epsilon that a given `sigma` certifies.
    delta : float, default=1e-5
        Total, inside (0, 1); choose it well below ``1 / n_samples``.
    data_norm : float, default=1.0
        Public bound on the Euclidean norm of a row of X.
    classes : array-like of shape (n_classes,), default=None
        All labels that can occur, declared.  None infers them from y, with a
        :class:`~sklearn_dpop.exceptions.PrivacyLeakWarning` in the report.
    adjacency : {"replace-one", "zero-out"}, default="replace-one"
        Neighbouring relation: one record replaced by any other, or one record's
        contribution removed (replaced by the null record).  Zero-out needs half the noise.
    calibration : {"corollary", "tight"}, default="corollary"
        ``"corollary"``: the closed form of Corollary 4.13.  ``"tight"``: Theorem C.13
        evaluated numerically, for any epsilon, with several times less noise.
    comparator_norm : float, default=10.0
        Public radius W of the coefficient vectors to compete with.  It steers the
        regularization, not the privacy.
    failure_probability : float, default=0.05
        :math:`\delta_S` of the utility bounds.
    loss : {"logistic", "smoothed_hinge"} or MarginLoss, default="logistic"
        Loss, given by name or as an object with ``constants`` and ``derivative``.
    margin : float, default=0.0
        Public margin m of a loss given by name, :math:`\log(1 + e^{m - yt})` for the
        logistic.  Values of 1 to 4 give a stronger signal for the same noise.
    temperature : float, default=0.25
        Public temperature of ``loss="smoothed_hinge"``; other losses have none.
    class_weight : dict, default=None
        Public weight of every class, ``{label: weight}``; absent labels weigh 1.
        ``"balanced"`` is refused: it reads the private label counts.
    fit_intercept : bool, default=True
        Whether to append a constant feature.  It is clipped, regularized and perturbed
        with the others.
    intercept_scaling : float, default=0.25
        Value of the constant feature, public.  Small values cost less noise, large ones
        regularize the intercept less.
    clip : bool, default=True
        Scale rows longer than `data_norm` down to it, record by record, in `fit` and in
        prediction alike.  False refuses training data that contain such a row.
    mu, sigma, eta : float, default=None
        Regularization, noise standard deviation and step size, if they are to be fixed.
    n_iter : int or "auto", default="auto"
        Number of gradient steps.  With ``calibration="tight"`` and no `mu`, a fixed number
        raises the regularization to what it can certify.
    random_state : int, RandomState instance or Generator, default=None
        None draws the noise from a cryptographic generator keyed by the operating system.
        Anything else makes the release reproducible and therefore not private, which the
        report says.  An integer is combined with the public configuration, so that two
        fits that differ in a parameter or in the shape of the data use different noise.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Released coefficients.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Released intercepts.
    classes_ : ndarray of shape (n_classes,)
        Sorted labels.
    privacy_report_ : PrivacyReport
        The guarantee, how it follows from public numbers, and its limits.
    mu_, sigma_, eta_ : float
        Parameters of the mechanism.
    n_iter_ : int
        Number of gradient steps, public.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, when X has string names.

    See Also
    --------
    sklearn_dpop.preprocessing.BoundedScaler : Scaling by public bounds.
    sklearn_dpop.privacy.calibrate_objective_perturbation : The planner behind the fit.

    Notes
    -----
    Coefficients, intercept and public numbers are all that a fitted estimator holds.
    Every fit is a new release and spends its whole budget: the 50 fits of a grid search
    over 10 candidates with 5 folds spend 50 budgets, on overlapping records.

    Under a seeded `random_state`, two fits with equal parameters on data of equal shape
    (as in cross-validation with equal folds) use the same noise.  Leave it None for
    anything that leaves your desk.

    References
    ----------
    .. [1] A. Watkins, R. Arora, "Differential Privacy of Gradient Descent on Perturbed
       Objectives", arXiv 2610.02716.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_dpop import ObjPertGDLogisticRegression
    >>> from sklearn_dpop.preprocessing import BoundedScaler
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> upper = [30, 40, 200, 2600, 0.2, 0.4, 0.5, 0.3, 0.4, 0.1, 3, 5, 25, 550, 0.04,
    ...          0.2, 0.4, 0.1, 0.1, 0.05, 40, 50, 260, 4300, 0.3, 1.1, 1.3, 0.3, 0.7, 0.3]
    >>> model = make_pipeline(
    ...     BoundedScaler(bounds=([0] * 30, upper)),
    ...     ObjPertGDLogisticRegression(
    ...         epsilon=2.0, calibration="tight", data_norm=3.0, classes=[0, 1]),
    ... ).fit(X, y)
    >>> model[-1].privacy_report_.epsilon, model[-1].privacy_report_.adjacency
    (2.0, 'replace-one')
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "epsilon": [_POSITIVE, None],
        "delta": [_INSIDE_UNIT],
        "data_norm": [_POSITIVE],
        "classes": ["array-like", None],
        "adjacency": [StrOptions(set(ADJACENCIES))],
        "calibration": [StrOptions(set(CALIBRATIONS))],
        "comparator_norm": [_POSITIVE],
        "failure_probability": [_INSIDE_UNIT],
        "loss": [StrOptions({"logistic", "smoothed_hinge"}), MarginLoss],
        "margin": [Interval(Real, 0, None, closed="left")],
        "temperature": [_POSITIVE],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "fit_intercept": ["boolean"],
        "intercept_scaling": [_POSITIVE],
        "clip": ["boolean"],
        "mu": [_POSITIVE, None],
        "sigma": [_POSITIVE, None],
        "eta": [_POSITIVE, None],
        "n_iter": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "random_state": ["random_state", np.random.Generator],
    }

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        *,
        data_norm: float = 1.0,
        classes: ArrayLike | None = None,
        adjacency: str = "replace-one",
        calibration: str = "corollary",
        comparator_norm: float = 10.0,
        failure_probability: float = 0.05,
        loss: str | MarginLoss = "logistic",
        margin: float = 0.0,
        temperature: float = 0.25,
        class_weight: dict[Any, float] | None = None,
        fit_intercept: bool = True,
        intercept_scaling: float = 0.25,
        clip: bool = True,
        mu: float | None = None,
        sigma: float | None = None,
        eta: float | None = None,
        n_iter: int | str = "auto",
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.classes = classes
        self.adjacency = adjacency
        self.calibration = calibration
        self.comparator_norm = comparator_norm
        self.failure_probability = failure_probability
        self.loss = loss
        self.margin = margin
        self.temperature = temperature
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.clip = clip
        self.mu = mu
        self.sigma = sigma
        self.eta = eta
        self.n_iter = n_iter
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        tags.classifier_tags.poor_score = True
        return tags

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any) -> ObjPertGDLogisticRegression:
        """Release a private classifier trained on the records ``(X, y)``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Features; dense, CSR, memory-mapped or a data frame.  Never copied whole when
            its type is float32 or float64.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        ObjPertGDLogisticRegression
            The fitted estimator.

        Raises
        ------
        ValueError
            For invalid parameters or data, and when no theorem certifies the requested
            guarantee; always before any noise is drawn.
        """
        with speechless():
            X, y = validate_data(
                self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], order=None
            )
        X = _canonical(X)
        classes, codes = self._encode(y)
        n_features = X.shape[1]
        positive = [1] if len(classes) == 2 else list(range(len(classes)))
        weights = self._class_weights(classes)
        loss = self._loss()
        certificate = self._calibrate(X.shape, classes, weights, loss)
        self._warn_of_public_numbers(X.shape, certificate)
        scales = self._row_scales(X)

        generator, noise_source = noise_generator(
            self.random_state, context=self._context(classes, X.shape)
        )
        shape = (certificate.release.n_features, len(positive))
        w = perturbed_gradient_descent(
            X,
            codes,
            loss,
            positive=positive,
            noise=gaussian_noise(generator, certificate.sigma, shape),
            mu=certificate.mu,
            eta=certificate.eta,
            n_iter=certificate.n_iter,
            scales=scales,
            intercept_scaling=self.intercept_scaling if self.fit_intercept else None,
            class_weight=weights,
        )

        self.classes_ = classes
        self.coef_ = np.ascontiguousarray(w[:n_features].T)
        if self.fit_intercept:
            self.intercept_ = w[-1] * self.intercept_scaling
        else:
            self.intercept_ = np.zeros(len(positive))
        self.mu_ = certificate.mu
        self.sigma_ = certificate.sigma
        self.eta_ = certificate.eta
        self.n_iter_ = certificate.n_iter
        self.privacy_report_ = self._report(certificate, classes, noise_source)
        # A seed was the user's explicit choice: the report says what it means, fit is silent.
        public_inputs = self.privacy_report_.public_inputs
        for message in expected_warnings(certificate, public_inputs, seeded=False):
            leak = "inferred" in message
            warnings.warn(message, PrivacyLeakWarning if leak else UserWarning, stacklevel=3)
        return self

    def plan(self, n_samples: int, n_features: int) -> PrivacyReport:
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
            Its `noise_source` says that it is a plan.

        Raises
        ------
        ValueError
            If `classes` is not declared, and as :meth:`fit` for parameters that no theorem
            certifies.

        Examples
        --------
        >>> from sklearn_dpop import ObjPertGDLogisticRegression
        >>> clf = ObjPertGDLogisticRegression(epsilon=1.0, classes=[0, 1], calibration="tight")
        >>> report = clf.plan(n_samples=10_000, n_features=30)
        >>> report.epsilon, report.certificate.n_iter < clf.plan(50_000, 30).certificate.n_iter
        (1.0, True)
        """
        self._validate_params()
        shape, classes = planned_shape(n_samples, n_features), planned_classes(self.classes)
        certificate = self._calibrate(shape, classes, self._class_weights(classes), self._loss())
        return self._report(certificate, classes, PLANNED)

    # --- what fit is made of ------------------------------------------------------------------

    def _calibrate(
        self,
        shape: tuple[int, int],
        classes: NDArray[Any],
        weights: NDArray[np.float64] | None,
        loss: MarginLoss,
    ) -> ObjectivePerturbationCertificate:
        """Return the certificate of a fit to a table of this shape."""
        constants = loss.constants
        if weights is not None:
            constants = constants.scaled(float(weights.max()))
        zeta = float(self.data_norm)
        if self.fit_intercept:
            zeta = math.nextafter(math.hypot(zeta, self.intercept_scaling), math.inf)
        return calibrate_objective_perturbation(
            shape[0],
            shape[1] + int(self.fit_intercept),
            self.epsilon,
            self.delta,
            data_norm=zeta,
            comparator_norm=self.comparator_norm,
            failure_probability=self.failure_probability,
            calibration=self.calibration,
            mu=self.mu,
            sigma=self.sigma,
            n_iter=self.n_iter,
            eta=self.eta,
            adjacency=self.adjacency,
            loss=constants,
            n_problems=1 if len(classes) == 2 else len(classes),
        )

    def _warn_of_public_numbers(
        self, shape: tuple[int, int], certificate: ObjectivePerturbationCertificate
    ) -> None:
        cells = float(shape[0]) * shape[1] * certificate.n_iter * certificate.n_problems
        if self.n_iter == "auto" and cells > _MANY_CELLS:
            warnings.warn(
                f"n_iter='auto' takes {certificate.n_iter:,} steps, each over all of the "
                f"{shape[0]:,} records, which may take minutes or hours.  A smaller n_iter has "
                f"the same guarantee and more regularization",
                UserWarning,
                stacklevel=4,
            )
        p = certificate.release
        # Without noise every iterate has a norm of at most L1 zeta / mu, by induction from 0.
        largest = p.gradient_bound * p.data_norm / p.mu
        if largest < _FLAT:
            warnings.warn(
                f"mu={p.mu:.3g} is so much regularization that no score of the model exceeds "
                f"{largest:.2g}, noise apart: more steps (n_iter) or a smaller mu are needed",
                UserWarning,
                stacklevel=4,
            )

    def _encode(self, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """Return the sorted labels and the code of every record's label."""
        if self.classes is None:
            check_classification_targets(y)
            classes = np.unique(y)
            if len(classes) < 2:
                raise ValueError(
                    "y contains only one class; a classifier needs at least 2 (declare them "
                    "with classes=)"
                )
        else:
            classes = declared_classes(self.classes)
        position = {label: code for code, label in enumerate(classes.tolist())}
        present, inverse = np.unique(y, return_inverse=True)
        if not all(label in position for label in present.tolist()):
            raise ValueError(f"y contains labels that are not in classes={self.classes!r}")
        codes = np.array([position[label] for label in present.tolist()], dtype=np.intp)
        return classes, codes[inverse]

    def _class_weights(self, classes: NDArray[Any]) -> NDArray[np.float64] | None:
        if self.class_weight is None:
            return None
        if isinstance(self.class_weight, str):
            raise ValueError(
                "class_weight='balanced': refused, because it is computed from the private "
                "label counts; give public weights as a dict, for example {0: 1.0, 1: 3.0}"
            )
        weights = np.ones(len(classes))
        for label, weight in self.class_weight.items():
            (where,) = np.nonzero(classes == label)
            if len(where) != 1:
                raise ValueError(f"class_weight: label {label!r} is not one of the classes")
            if not isinstance(weight, Real) or not 1e-60 < weight < 1e60:
                raise ValueError(
                    f"class_weight[{label!r}]={weight!r}: must be a positive finite number"
                )
            weights[where] = weight
        return weights

    def _loss(self) -> MarginLoss:
        if self.loss == "logistic":
            return LogisticLoss(margin=self.margin)
        if self.loss == "smoothed_hinge":
            return SmoothedHingeLoss(margin=self.margin, temperature=self.temperature)
        assert isinstance(self.loss, MarginLoss)
        return self.loss

    def _row_scales(self, X: Any) -> NDArray[np.float64] | None:
        if self.clip:
            return clip_scales(X, float(self.data_norm))
        if (row_norms(X) > self.data_norm).any():
            raise ValueError(
                f"X has a row whose norm exceeds data_norm={self.data_norm!r}, and clip=False"
            )
        return None

    def _context(self, classes: NDArray[Any], shape: tuple[int, int]) -> dict[str, object]:
        """Return the public configuration that separates the noise of seeded fits."""
        context: dict[str, object] = {
            name: repr(value)
            for name, value in self.get_params(deep=False).items()
            if name not in ("random_state", "classes")
        }
        context |= {"classes": [str(label) for label in classes], "shape": list(shape)}
        return context

    def _report(
        self,
        certificate: Any,
        classes: NDArray[Any],
        noise_source: str,
    ) -> PrivacyReport:
        seeded = self.random_state is not None
        public_inputs = {
            "classes": "inferred" if self.classes is None else [str(c) for c in classes],
            "n_classes": len(classes),
            "row_norm_bound": float(self.data_norm),
            "rows_clipped": bool(self.clip),
            "intercept_scaling": float(self.intercept_scaling) if self.fit_intercept else None,
            "class_weight": None
            if self.class_weight is None
            else {str(label): float(weight) for label, weight in self.class_weight.items()},
        }
        return PrivacyReport(
            mechanism="objective-perturbation-gd",
            estimator=type(self).__name__,
            certificate=certificate,
            public_inputs=public_inputs,
            assumptions=_ASSUMPTIONS,
            noise_source=noise_source,
            seeded=seeded,
            warnings=expected_warnings(certificate, public_inputs, seeded=seeded),
            versions=package_versions(),
        )

    # --- prediction ----------------------------------------------------------------------------

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the scores ``X @ coef_.T + intercept_``, rows clipped as in `fit`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Features.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            One score per class; for two classes, that of ``classes_[1]``.
        """
        check_is_fitted(self)
        with speechless():
            X = validate_data(
                self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False
            )
        scores: NDArray[np.float64] = np.asarray(X @ self.coef_.T, dtype=np.float64)
        if self.clip:
            scales = clip_scales(_canonical(X), float(self.data_norm))
            if scales is not None:
                scores = scores * scales[:, None]
        scores += self.intercept_
        return scores.ravel() if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label with the largest score, for every row of X."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[codes]
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return ``expit`` of the scores, normalized over the classes.

        They are the model's probabilities for ``loss="logistic"`` with ``margin=0``; for
        other losses, a monotone map of the scores.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the logarithm of :meth:`predict_proba`."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([log_expit(-scores), log_expit(scores)])
        log_proba = log_expit(scores)
        total = np.logaddexp.reduce(log_proba, axis=1, keepdims=True)
        return np.asarray(log_proba - total)


_ASSUMPTIONS = (
    "the number of records, their number of features, all parameters and all labels listed "
    "are public",
    "one person contributes one record",
    "preprocessing before the estimator uses public constants only and treats each record alone",
    "the guarantee is a theorem about real arithmetic; float64 rounding is outside it",
    ONE_FIT,
)


def _canonical(X: Any) -> Any:
    """Return a sparse X with sorted, distinct, checked indices; anything else unchanged.

    scipy remembers whether a matrix is canonical; whoever changes its indices in place makes
    that memory false and clipping wrong, so it is looked up afresh.
    """
    if not issparse(X):
        return X
    view = csr_array((X.data, X.indices, X.indptr), shape=X.shape, copy=False)
    view.check_format(full_check=True)
    if not view.has_canonical_format:
        view = view.copy()
        view.sum_duplicates()
    return view
