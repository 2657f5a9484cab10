//! Lines of comma-separated values as RFC 4180 writes them, without line breaks in a field.

/// A line, its end included.
pub fn line<T: AsRef<str>>(fields: impl IntoIterator<Item = T>) -> String {
    let mut text = String::new();
    for (i, field) in fields.into_iter().enumerate() {
        if i > 0 {
            text.push(',');
        }
        let field = field.as_ref();
        if field.contains([',', '"']) {
            text.push('"');
            text += &field.replace('"', "\"\"");
            text.push('"');
        } else {
            text += field;
        }
    }
    text.push('\n');
    text
}

/// The fields of a line without its end.
pub fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                fields.last_mut().into_iter().for_each(|f| f.push('"'));
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().into_iter().for_each(|f| f.push(c)),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_back() {
        let given = ["ec:32,8", "", "a \"b\"", "1.5"];
        let text = line(given);
        assert_eq!(text, "\"ec:32,8\",,\"a \"\"b\"\"\",1.5\n");
        assert_eq!(fields(text.trim_end()), given);
    }
}
