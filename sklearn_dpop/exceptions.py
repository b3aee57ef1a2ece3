"""Warnings of the package."""

__all__ = ["PrivacyLeakWarning"]


class PrivacyLeakWarning(UserWarning):
    """Something was inferred from the records instead of being declared as public.

    The stated guarantee does not cover what was inferred.  Every such warning is
    also recorded in the ``warnings`` of the estimator's
    :class:`~sklearn_dpop.privacy.PrivacyReport`.
    """
