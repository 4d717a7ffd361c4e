//! Decimal numbers that count time, read digit by digit.
//!
//! A binary fraction holds 53 bits: the nanoseconds of today's date need 61. So a number is never read as one, and what
//! data says is what a question finds.

/// How many nanoseconds `text` counts, if its unit is 10 to the power of `unit_digits` nanoseconds: `1700000000.5`,
/// `-2`, `17e8`, as JSON, CSV and programs write them. Digits beyond the nanosecond are dropped, so a later number
/// never gives an earlier time.
///
/// `None` if the text is no decimal number: hexadecimal, `NaN`, `inf` and grouped digits are none.
///
/// # Errors
/// [`TooLarge`] beyond 128 bits.
pub fn decimal_ns(text: &str, unit_digits: u32) -> Option<Result<i128, TooLarge>> {
    let Decimal { is_negative, whole, fraction, exponent } = Decimal::read(text)?;
    let digits = || whole.bytes().chain(fraction.bytes()).map(|digit| i128::from(digit - b'0'));
    let leading = digits().take_while(|digit| *digit == 0).count();
    let len = whole.len() + fraction.len();
    if leading == len {
        return Some(Ok(0));
    }
    // Where the point stands once the unit and the exponent are counted in.
    let end = exponent.saturating_add(i64::from(unit_digits)).saturating_add(whole.len() as i64);
    let significant = end.saturating_sub(leading as i64);
    if significant <= 0 {
        return Some(Ok(0));
    }
    if significant > I128_DIGITS {
        return Some(Err(TooLarge));
    }
    let kept = digits().skip(leading).chain(std::iter::repeat(0)).take(significant as usize);
    let count = kept.fold(0, |count, digit| count * 10 + digit);
    Some(Ok(if is_negative { -count } else { count }))
}

/// A number of more nanoseconds than 128 bits hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// The parts of `[+-]whole[.fraction][e[+-]exponent]`, with a digit before or after the point.
struct Decimal<'a> {
    is_negative: bool,
    whole: &'a str,
    fraction: &'a str,
    /// As large as can be told apart: one of more digits is cut to the largest.
    exponent: i64,
}

impl Decimal<'_> {
    fn read(text: &str) -> Option<Decimal<'_>> {
        let (is_negative, unsigned) = signed(text);
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            None => (unsigned, 0),
            Some((mantissa, written)) => {
                let (is_negative, digits) = signed(written);
                let size = (!digits.is_empty() && all_digits(digits)).then(|| digits.parse().unwrap_or(i64::MAX))?;
                (mantissa, if is_negative { -size } else { size })
            }
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let is_number = all_digits(whole) && all_digits(fraction) && !(whole.is_empty() && fraction.is_empty());
        is_number.then_some(Decimal { is_negative, whole, fraction, exponent })
    }
}

fn signed(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

fn all_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// So many digits always fit 128 bits.
const I128_DIGITS: i64 = 38;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ns(text: &str, unit_digits: u32) -> i128 {
        decimal_ns(text, unit_digits).unwrap_or_else(|| panic!("{text} is no number")).unwrap()
    }

    #[test]
    fn numbers_are_read_as_programs_write_them() {
        assert_eq!(ns("1700000000.123456789", 9), 1_700_000_000_123_456_789);
        assert_eq!(ns("1700000000123.456789", 6), 1_700_000_000_123_456_789);
        assert_eq!(ns("1.700000000123456789e9", 9), 1_700_000_000_123_456_789);
        assert_eq!(ns("17E+8", 9), 1_700_000_000_000_000_000);
        assert_eq!(ns("1700000000123456789000e-3", 0), 1_700_000_000_123_456_789);
        assert_eq!(ns("-0.5", 9), -500_000_000);
        assert_eq!(ns("+.5", 9), 500_000_000);
        assert_eq!(ns("5.", 0), 5);
        assert_eq!(ns("007", 0), 7);
        assert_eq!(ns("0.0000000009", 9), 0, "beyond the nanosecond");
        assert_eq!(ns("1.9999999999", 9), 1_999_999_999);
        assert_eq!(ns("-1.9999999999", 9), -1_999_999_999);
        assert_eq!(ns("0e99999999999999999999", 9), 0);
        assert_eq!(ns("1e-99999999999999999999", 9), 0);
    }

    #[test]
    fn invalid_numbers_and_too_large_ones_are_distinguished() {
        for text in [
            "", "-", ".", "e5", "1e", "1e+", "1e1.5", "0x10", "NaN", "inf", "1_000", "1,5", " 1", "1 ", "--1", "1-1",
            "١",
        ] {
            assert_eq!(decimal_ns(text, 9), None, "{text:?}");
        }
        for text in ["1e40", "1e99999999999999999999", &"9".repeat(39)] {
            assert_eq!(decimal_ns(text, 0), Some(Err(TooLarge)), "{text:?}");
        }
    }

    proptest! {
        /// Whatever the unit, the point and the exponent: the digits that were written are found.
        #[test]
        fn every_time_is_found_as_it_was_written(
            count in any::<i64>(),
            unit_digits in prop::sample::select(vec![0u32, 3, 6, 9]),
            moved in -30i64..30,
            zeros in 0usize..4,
        ) {
            // The digits, with the point as many places from the end as the unit has, moved, and moved back by the
            // exponent.
            let digits = count.unsigned_abs().to_string();
            let behind = i64::from(unit_digits) + moved;
            let mantissa = match usize::try_from(behind) {
                Ok(behind) => {
                    let padded = format!("{digits:0>width$}", width = behind + 1);
                    let (whole, fraction) = padded.split_at(padded.len() - behind);
                    format!("{whole}.{fraction}{}", "0".repeat(zeros))
                }
                Err(_) => format!("{digits}{}", "0".repeat(behind.unsigned_abs() as usize)),
            };
            let sign = if count < 0 { "-" } else { "" };
            let text = match moved {
                0 => format!("{sign}{}{mantissa}", "0".repeat(zeros)),
                moved => format!("{sign}{mantissa}e{moved}"),
            };
            prop_assert_eq!(decimal_ns(&text, unit_digits), Some(Ok(count.into())), "{}", text);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[-+.eE0-9x]{0,20}") {
            let _ = decimal_ns(&text, 9);
        }

        /// Rows in order stay in order, whatever is dropped.
        #[test]
        fn a_larger_number_never_gives_an_earlier_time(
            one in "-?[0-9]{1,3}\\.[0-9]{1,6}",
            other in "-?[0-9]{1,3}\\.[0-9]{1,6}",
        ) {
            let (first, second) = (one.parse::<f64>().unwrap(), other.parse::<f64>().unwrap());
            let (a, b) = (ns(&one, 3), ns(&other, 3));
            prop_assert!(first >= second || a <= b, "{one} {other}");
        }
    }
}
