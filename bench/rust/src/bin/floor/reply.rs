//! Parses the answers of the scripts: an integer, a list of integers, or an error.

/// Returns the length of the first answer in `data`, and its first number or the error. Returns `None` if the
/// answer is incomplete.
pub fn first(data: &[u8]) -> Option<(usize, Result<i64, String>)> {
    let (text, mut end) = line(data, 0)?;
    let parts = match (data[0], number(text)) {
        (b':', Ok(number)) => return Some((end, Ok(number))),
        (b'*', Ok(parts)) => parts,
        _ => return Some((end, Err(text.to_owned()))),
    };
    let mut result = Err("an empty list".to_owned());
    for part in 0..parts {
        let (text, next) = line(data, end)?;
        if part == 0 {
            result = number(text);
        }
        end = next;
    }
    Some((end, result))
}

/// Returns the line that begins at `start`, and the start of the next line.
pub fn line(data: &[u8], start: usize) -> Option<(&str, usize)> {
    let length = data[start..].windows(2).position(|two| two == b"\r\n")?;
    let text = str::from_utf8(&data[start..start + length]).unwrap_or("not UTF-8");
    Some((text, start + length + 2))
}

fn number(text: &str) -> Result<i64, String> {
    text.get(1..).and_then(|digits| digits.parse().ok()).ok_or_else(|| text.to_owned())
}
