//! `${NAME}` in a value stands for a variable of the environment.

use std::ffi::OsString;

/// How a variable is looked up; `None` is one that is not set.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Puts in the variables that a value names; `$${` is a plain `${`. The error is a sentence without the value.
pub(super) fn expand(value: &str, environment: Environment<'_>) -> Result<String, String> {
    let mut expanded = String::with_capacity(value.len());
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        if let Some(before) = before.strip_suffix('$') {
            expanded.push_str(before);
            expanded.push_str("${");
            rest = after;
            continue;
        }
        let (name, after) = after.split_once('}').filter(|(name, _)| is_name(name)).ok_or(
            "`${` needs the name of an environment variable and `}` behind it (a plain `${` is written `$${`)",
        )?;
        let found = environment(name).ok_or_else(|| format!("the environment variable {name} is not set"))?;
        let found = found.into_string().map_err(|_| format!("the environment variable {name} is not UTF-8"))?;
        expanded.push_str(before);
        expanded.push_str(&found);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn is_name(name: &str) -> bool {
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(letters) && !name.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand_with(value: &str) -> Result<String, String> {
        expand(value, &|name| (name == "USER").then(|| "ada".into()))
    }

    #[test]
    fn variables_are_put_in() {
        assert_eq!(expand_with("a ${USER}, ${USER}").unwrap(), "a ada, ada");
        assert_eq!(expand_with("$${USER} $USER $").unwrap(), "${USER} $USER $");
    }

    #[test]
    fn what_a_variable_holds_is_not_expanded_again() {
        assert_eq!(expand("${A}", &|_| Some("${A}".into())).unwrap(), "${A}");
    }

    #[test]
    fn an_unset_variable_and_a_broken_reference_are_errors() {
        assert_eq!(expand_with("${HOST}").unwrap_err(), "the environment variable HOST is not set");
        for broken in ["${", "${}", "${a b}", "${1A}", "${USER"] {
            assert!(expand_with(broken).unwrap_err().starts_with("`${` needs"), "{broken}");
        }
    }
}
