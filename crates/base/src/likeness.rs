//! The known name that a mistyped one is most like, for error texts.

/// The likeness from which on a name is suggested: below, most suggestions would be chance.
const LEAST_LIKENESS: f64 = 0.6;

/// The one of `known` that is most like `name`; `None` if none is like it.
#[must_use]
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likest = known
        .into_iter()
        .map(|known| (strsim::normalized_damerau_levenshtein(name, known), known))
        .max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    (likest.0 >= LEAST_LIKENESS).then_some(likest.1)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_mistyped_name_is_found_and_another_word_is_not() {
        let known = ["access_key_id", "secret_access_key", "region"];
        assert_eq!(nearest("acess_key_id", known), Some("access_key_id"));
        assert_eq!(nearest("regoin", known), Some("region"));
        assert_eq!(nearest("x", known), None);
        assert_eq!(nearest("x", []), None);
    }
}
