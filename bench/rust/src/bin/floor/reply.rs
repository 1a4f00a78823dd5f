//! Parses the replies of a server.

/// Returns the length of the first reply in `data`, and its error if it is one. Returns `None` if the reply is
/// incomplete.
pub fn first(data: &[u8]) -> Option<(usize, Result<(), String>)> {
    let (text, end) = line(data)?;
    let (kind, rest) = text.split_at_checked(1)?;
    let count = || rest.parse::<i64>().map_err(|_| text.to_owned());
    match kind {
        "+" | ":" => Some((end, Ok(()))),
        "$" => match count() {
            // -1 stands for nil.
            Ok(..0) => Some((end, Ok(()))),
            Ok(size) => {
                let end = end + size as usize + 2;
                (data.len() >= end).then_some((end, Ok(())))
            }
            Err(error) => Some((end, Err(error))),
        },
        "*" => match count() {
            Ok(parts) => {
                let mut end = end;
                for _ in 0..parts {
                    end += first(data.get(end..)?)?.0;
                }
                Some((end, Ok(())))
            }
            Err(error) => Some((end, Err(error))),
        },
        _ => Some((end, Err(text.to_owned()))),
    }
}

/// Returns the first line, and the start of the next one.
fn line(data: &[u8]) -> Option<(&str, usize)> {
    let length = data.windows(2).position(|two| two == b"\r\n")?;
    Some((str::from_utf8(&data[..length]).unwrap_or("not UTF-8"), length + 2))
}
