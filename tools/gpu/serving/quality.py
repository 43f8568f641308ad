"""How far vectors are from the reference's, and whether that is near enough."""

import numpy as np

import plan


def cosines(a, b):
    return (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))


def compare(vectors, reference):
    """Figures of one set of vectors. Centred: after taking the reference's mean from both, which
    makes a shared direction, as random models have one, no help."""
    a, b = np.asarray(vectors, np.float64), np.asarray(reference, np.float64)
    if a.shape != b.shape:
        return {"texts": len(b), "shape": f"{a.shape}, the reference has {b.shape}"}
    if not np.isfinite(a).all():
        bad = int((~np.isfinite(a)).any(1).sum())
        return {"texts": len(b), "not_finite": bad}
    with np.errstate(divide="ignore", invalid="ignore"):
        cosine, centred = cosines(a, b), cosines(a - b.mean(0), b - b.mean(0))
        ratio = np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return {
        "texts": len(b),
        "cosine_min": float(cosine.min()),
        "cosine_mean": float(cosine.mean()),
        "centred_cosine_min": float(centred.min()),
        "norm_ratio_min": float(ratio.min()),
        "norm_ratio_max": float(ratio.max()),
        "max_abs": float(np.abs(a - b).max()),
        "reference_max_abs": float(np.abs(b).max()),
        "worst_text": int(cosine.argmin()),
    }


def misses(precision, found):
    """What is not as it must be, in words; empty when all is well. NaN is never near enough."""
    if "shape" in found:
        return [f"vectors of shape {found['shape']}"]
    if "not_finite" in found:
        return [f"{found['not_finite']} of {found['texts']} vectors hold NaN or infinity"]
    out, bar = [], plan.COSINE[precision]
    if not found["cosine_min"] >= bar:
        out.append(
            f"cosine {found['cosine_min']:.6f} at text {found['worst_text']}; at least {bar} is needed")
    low, high = found["norm_ratio_min"], found["norm_ratio_max"]
    if not (low >= 1 - plan.NORM and high <= 1 + plan.NORM):
        out.append(f"norm ratio {low:.4f} to {high:.4f}; within {plan.NORM:.0%} of 1 is needed")
    return out
