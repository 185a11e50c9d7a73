//! Enough of Rust's lexical grammar to separate code from comments and literals, so that a rule
//! about code does not match a comment.

/// The text with every comment, string and character literal replaced by blanks. Line breaks
/// stay, so line numbers do too.
pub(crate) fn mask(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let blanked = opaque_bytes(rest);
        let taken = if blanked > 0 { blanked } else { word_bytes(rest).max(first.len_utf8()) };
        let (head, tail) = rest.split_at_checked(taken).unwrap_or((rest, ""));
        if blanked > 0 {
            masked.extend(head.chars().map(|each| if each == '\n' { '\n' } else { ' ' }));
        } else {
            masked.push_str(head);
        }
        rest = tail;
    }
    masked
}

/// Length of the identifier or number at the start, so that the `r` of `for"` begins no raw string.
fn word_bytes(text: &str) -> usize {
    text.find(|each: char| !each.is_alphanumeric() && each != '_').unwrap_or(text.len())
}

/// Length of the comment or literal at the start; 0 when there is none.
fn opaque_bytes(text: &str) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return block_comment_bytes(text);
    }
    for (prefix, raw) in [("br", true), ("cr", true), ("r", true), ("b", false), ("c", false)] {
        if let Some(body) = text.strip_prefix(prefix) {
            let bytes = if raw { raw_string_bytes(body) } else { quoted_bytes(body) };
            if bytes > 0 {
                return prefix.len() + bytes;
            }
        }
    }
    quoted_bytes(text)
}

/// Block comments nest.
fn block_comment_bytes(text: &str) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(rest) = text.get(at..) {
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            match rest.chars().next() {
                Some(each) => at += each.len_utf8(),
                None => break,
            }
        }
    }
    text.len()
}

/// `#…#"` to `"#…#` with the same number of marks; 0 for other text (`r#type`).
fn raw_string_bytes(body: &str) -> usize {
    let marks = body.bytes().take_while(|each| *each == b'#').count();
    let Some(inside) = body.get(marks..).and_then(|rest| rest.strip_prefix('"')) else { return 0 };
    let end = format!("\"{}", "#".repeat(marks));
    inside.find(&end).map_or(body.len(), |at| marks + 1 + at + end.len())
}

/// A string or character literal at the start; 0 for anything else, lifetimes included.
fn quoted_bytes(text: &str) -> usize {
    let Some(quote @ ('"' | '\'')) = text.chars().next() else { return 0 };
    let mut each = text.char_indices().skip(1);
    let mut inside = 0;
    while let Some((at, found)) = each.next() {
        inside += 1;
        if found == quote {
            return at + 1;
        }
        if found == '\\' {
            each.next();
            // `'\u{1F600}'` is one character, in any notation.
            inside -= usize::from(quote == '\'');
        }
        let escaped = text.starts_with("'\\");
        if quote == '\'' && inside > 1 && !escaped {
            return 0;
        }
    }
    if quote == '"' { text.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[test]
    fn comments_and_literals_go_and_lines_stay() {
        for (text, masked) in [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c\n */ d */ e", "a          \n         e"),
            ("x(\"a\\\"b\", 'c', '\\'', b'd')", "x(      ,    ,     ,     )"),
            ("r#\"a\"b\"# + r#type", "         + r#type"),
            ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
            ("'\\u{1F600}' }", "            }"),
            ("br\"{\" {", "      {"),
            ("for\"{\" {", "for    {"),
            ("'{' '}'", "       "),
        ] {
            assert_eq!(mask(text), masked, "{text}");
        }
    }
}
