//! W3C Trace Context: a record's trace header.

/// The name of the header, on records and in HTTP.
pub const TRACEPARENT: &str = "traceparent";

/// Returns whether a text is a `traceparent` of version 00 (W3C Trace Context, "traceparent Header"). Other text is not
/// forwarded.
pub fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [version, trace, parent, flags] = parts[..] else { return false };
    let hex = |part: &str, digits: usize| {
        part.len() == digits && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_set = |part: &str| part.bytes().any(|byte| byte != b'0');
    version == "00" && hex(trace, 32) && is_set(trace) && hex(parent, 16) && is_set(parent) && hex(flags, 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_traceparent_is_one() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(is_traceparent(good));
        let zero = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        for bad in
            ["", "00", zero, &good.to_uppercase(), &good.replace("00-4", "01-4"), &format!("{good}-x"), &good[1..]]
        {
            assert!(!is_traceparent(bad), "{bad}");
        }
    }
}
