//! The little XML of the protocol: documents are written as text, and two kinds are read.

/// Text between tags.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for each in text.chars() {
        match each {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\r' => escaped.push_str("&#13;"),
            _ => escaped.push(each),
        }
    }
    escaped
}

fn unescape(text: &str) -> String {
    let named = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&#13;", "\r")];
    let mut plain = text.to_owned();
    for (entity, character) in named.into_iter().chain([("&#34;", "\""), ("&#39;", "'")]) {
        plain = plain.replace(entity, character);
    }
    plain.replace("&amp;", "&")
}

/// `<name>text</name>`.
pub(crate) fn element(name: &str, text: &str) -> String {
    format!("<{name}>{}</{name}>", escape(text))
}

/// A document whose root has the namespace of S3.
pub(crate) fn document(root: &str, content: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <{root} xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{content}</{root}>"
    )
}

/// The document of an error.
pub(crate) fn error(code: &str, message: &str) -> String {
    let content = [element("Code", code), element("Message", message)].concat();
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>{content}</Error>")
}

/// The contents of all elements `name` in a document, as they are written.
pub(crate) fn elements<'a>(document: &'a str, name: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let parts = document.split(open.as_str()).skip(1);
    parts.filter_map(|part| part.split(close.as_str()).next()).collect()
}

/// The text of the first element `name`.
pub(crate) fn text(document: &str, name: &str) -> Option<String> {
    elements(document, name).first().map(|text| unescape(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_survives() {
        let key = "a<b>&amp;\"\r";
        assert_eq!(text(&element("Key", key), "Key").as_deref(), Some(key));
        let body = "<Delete><Object><Key>a</Key></Object><Object><Key>b</Key></Object></Delete>";
        let objects = elements(body, "Object");
        let keys: Vec<_> = objects.iter().filter_map(|object| text(object, "Key")).collect();
        assert_eq!(keys, ["a", "b"]);
        assert_eq!(text(body, "Quiet"), None);
    }
}
