//! The kernel's own estimate of the error of its clock.

#![expect(unsafe_code, reason = "adjtimex has no safe wrapper in rustix or nix; this file is all of it")]

/// The largest error of the wall clock in microseconds, as the kernel estimates it from its time service; `None` if the
/// clock is not synchronised or the kernel has no estimate.
///
/// `chronyd` and `ntpd` both update this estimate, and the kernel raises it by 500 ppm while they are silent.
pub(crate) fn kernel_error_us() -> Option<u64> {
    // SAFETY: `timex` is a plain C struct of integers, for which all zeroes is a value. `modes` = 0 asks and sets
    // nothing.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live, exclusively borrowed `timex`, which the call fills and does not keep.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    if state < 0 || state == libc::TIME_ERROR || timex.status & libc::STA_UNSYNC != 0 {
        return None;
    }
    u64::try_from(timex.maxerror).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_gives_an_error_below_its_own_limit_or_none() {
        // NTP_PHASE_LIMIT of the kernel, at which it calls the clock unsynchronised: 16 s.
        assert!(kernel_error_us().is_none_or(|us| us <= 16_000_000));
    }
}
