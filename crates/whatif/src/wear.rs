//! What a flash device writes for each byte that it is given.

/// Bytes that greedy cleaning writes for each byte written, at random and everywhere alike, where `utilisation` (0 to
/// 1) of the device's own bytes is in use.
///
/// A block that is cleaned still has a part `x` in use, which is written again: `1 / (1 - x)`. Between two cleanings of
/// a block the device writes all of its bytes, `(1 - x) / utilisation` of the used ones anew, so that `x` is
/// `exp(-(1 - x) / utilisation)`. Exact in the limit of large blocks; at least 1, and infinite for a full device.
///
/// # Source
/// Xiang and Kurkoski, An Improved Analytic Expression for Write Amplification in NAND Flash (ICNC 2012); Desnoyers,
/// Analytic Modeling of SSD Write Performance (SYSTOR 2012).
pub fn greedy_amplification(utilisation: f64) -> f64 {
    if utilisation <= 0.0 {
        return 1.0;
    }
    if utilisation >= 1.0 {
        return f64::INFINITY;
    }
    // 1 is a solution as well: the other one lies below it, where the difference changes its sign once.
    let (mut low, mut high) = (0.0, utilisation);
    for _ in 0..BISECTIONS {
        let middle = f64::midpoint(low, high);
        if (-(1.0 - middle) / utilisation).exp() > middle { low = middle } else { high = middle }
    }
    1.0 / (1.0 - f64::midpoint(low, high))
}

/// More than a double has digits.
const BISECTIONS: u32 = 60;
