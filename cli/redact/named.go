package redact

import (
	"regexp"
	"strings"
)

// secretWords are parts of names under which secrets are kept.
const secretWords = `passw|passphrase|passcode|pwd|secret|token|api[ _-]?key|private[_-]?key|credential|authorization|cookie`

// secretNames are those names. "pass" is only the end of one, or of a part of one: much is passed, or is a compass.
const secretNames = `(?:[A-Za-z0-9_.-]*(?:` + secretWords + `)[A-Za-z0-9_.-]*|[A-Za-z0-9_.-]*pass(?:[0-9_.-][A-Za-z0-9_.-]*)?)`

// secretHints are parts of all of them.
var secretHints = []string{"pass", "pwd", "secret", "token", "key", "credential", "authorization", "cookie"}

var (
	secretName = regexp.MustCompile(`(?i)^.*(?:` + secretWords + `)|^(?:.*[^A-Za-z0-9_.-])?[A-Za-z0-9_.-]*pass(?:[^A-Za-z].*)?$`)
	// named is a name that says what its value is, and the beginning of that, as logs, JSON and YAML have it, also where quotes are escaped.
	named = regexp.MustCompile(`(?i)(` + secretNames + `)(\\*["'])?\s*(=>|:=|[=:])\s*(\\*["'])?`)
	// worded is an option or a word with its value behind it, also as two arguments in a list.
	worded = regexp.MustCompile(`(?i)(?:^|[^A-Za-z0-9_.-])(?:(--?` + secretNames + `)(?:[ \t]+|\\*["'][ \t]*,?[ \t]*)|(pass ?phrase|password|passwd|passcode|pwd)[ \t]+|` +
		`(?:secret|token|api[ _-]?key|credentials?)[ \t]+)(?:(?:is|was)[ \t]+)?(\\*["'])?`)
	argument = regexp.MustCompile(`^[^\s"',;]+`)
	assigned = regexp.MustCompile(`^[A-Za-z0-9_.@-]+=[^=]`)
	digit    = regexp.MustCompile(`[0-9]`)
	// plain is a value that is rather a count or an answer than a secret, and whose place in JSON a text could not take.
	plain = regexp.MustCompile(`^(-?[0-9]{1,3}|true|false|null)$`)
	// single is a name whose value has no spaces; credentials in a header have one, behind the scheme.
	single = regexp.MustCompile(`(?i)token|key|authorization`)
	scheme = regexp.MustCompile(`(?i)^(?:bearer|basic)\s+`)
	// ends is where a value without quotes ends: at what separates it from something else. In the middle of a word that is a part of it.
	ends = regexp.MustCompile(`^(?:\\{1,16}[nr"']|[\])},;&"'\\]{1,16}[.:]?(?:\s|$|[{\["']|[A-Za-z0-9_.@-]+\\*["']?\s*[=:]))`)
	// next is what follows a value of several words, and is none of them.
	next = regexp.MustCompile(`^\s+(?:[A-Za-z0-9_.@/-]+=|--[A-Za-z]|$)`)
	// prose are words that follow "password" where none does.
	prose = regexp.MustCompile(`(?i)^(a|an|and|are|as|at|auth|authentication|based|but|by|can|cannot|change|changed|check|could|does|expired|failed|failure|file|for|from|` +
		`given|had|has|hash|if|in|incorrect|input|invalid|is|it|length|login|manager|may|mismatch|missing|must|needed|not|of|on|or|policy|prompt|protected|` +
		`protection|rejected|required|reset|should|that|the|to|too|updated|was|were|when|which|will|with|without|wrong)[.:!?)]*$`)
)

// longest is how far a quoted value behind a word is looked for, in bytes.
const longest = 1 << 10

// isSecret says whether a name is one under which secrets are kept.
func isSecret(name string) bool { return secretName.MatchString(name) }

// isDirectory says whether a value is the working directory of a process, whose name is that of a password elsewhere.
func isDirectory(name, value string) bool {
	return (name == "PWD" || name == "OLDPWD") && strings.HasPrefix(value, "/")
}

// named takes out the values that have a name which says what they are.
func (r *Redactor) named(text string) string {
	var result strings.Builder
	for {
		found := named.FindStringSubmatchIndex(text)
		if found == nil {
			result.WriteString(text)
			return result.String()
		}
		group := func(i int) string {
			if found[2*i] < 0 {
				return ""
			}
			return text[found[2*i]:found[2*i+1]]
		}
		name, nameQuote, sign, quote := group(1), group(2), group(3), group(4)
		result.WriteString(text[:found[1]])
		text = text[found[1]:]
		if quote != "" && closes(text) {
			continue
		}
		value, most := "", words(name)
		switch {
		case quote != "":
			value = quoted(text, quote)
		case sign == ":" && strings.HasSuffix(strings.ToLower(name), "cookie") && nameQuote == "":
			// A header has several, with signs that separate elsewhere.
			value, _, _ = strings.Cut(text, "\n")
		default:
			value = unquoted(text, most)
		}
		// Behind a scheme is what was dealt with.
		done := scheme.ReplaceAllString(value, "") == Mark || most > 1 && strings.HasPrefix(value, Mark+" ")
		if value == "" || done || quote == "" && plain.MatchString(value) {
			continue
		}
		if isDirectory(name, value) {
			result.WriteString(value)
			text = text[len(value):]
			continue
		}
		r.count++
		text = text[len(value):]
		if quote == "" && nameQuote != "" {
			// It was a number or a list in JSON, where a text has quotes.
			result.WriteString(nameQuote + Mark + nameQuote)
			continue
		}
		result.WriteString(Mark)
	}
}

// words is how many words the value of a name can have; 0: any number.
func words(name string) int {
	if name == "PWD" || name == "OLDPWD" {
		return 1
	}
	switch found := strings.ToLower(single.FindString(name)); {
	case found == "" || strings.Contains(strings.ToLower(name), "pass"):
		return 0
	case found == "authorization":
		return 2
	default:
		return 1
	}
}

// worded takes out values that follow an option or a word.
func (r *Redactor) worded(text string) string {
	var result strings.Builder
	for {
		found := worded.FindStringSubmatchIndex(text)
		if found == nil {
			result.WriteString(text)
			return result.String()
		}
		// The last character belongs to what may follow: a space, behind which the next word can be another one of these.
		rest := text[found[1]:]
		option, password := found[2] >= 0, found[4] >= 0
		value := ""
		inQuotes := found[6] >= 0
		if inQuotes {
			within := rest
			if !option && !password {
				// It may be prose, up to a quote that closes nothing.
				within = rest[:min(len(rest), longest)]
			}
			value = quoted(within, text[found[6]:found[7]])
		} else if value = strings.TrimRight(argument.FindString(rest), ".:)]}"); strings.HasPrefix(rest, Mark) || option && strings.HasPrefix(value, "-") {
			value = ""
		}
		take := strings.Trim(value, ":=>") != "" && value != Mark && (inQuotes || !assigned.MatchString(value))
		if option || password {
			take = take && (inQuotes || !prose.MatchString(value) && !isSecret(value))
		} else {
			// Much is said of tokens and secrets: only what is no word is one.
			take = take && len(value) >= shortest && digit.MatchString(value) && !evident(value)
		}
		if !take {
			result.WriteString(text[:found[1]-1])
			text = text[found[1]-1:]
			continue
		}
		r.count++
		result.WriteString(text[:found[1]] + Mark)
		text = rest[len(value):]
	}
}

// closes says whether a quote is rather the end of a text that ends with a name than the beginning of a value, by what follows it.
func closes(after string) bool {
	after = strings.TrimLeft(after, " \t\r")
	return after == "" || strings.ContainsRune(",]}:\"\n", rune(after[0]))
}

// quoted returns a text up to the quote that closes it, which is escaped by as many backslashes as the opening one was; up to the end of the line if there
// is none. Where one backslash escapes a quote, a backslash within is two and a quote within has three before it. A single quote can be an apostrophe.
func quoted(text, opening string) string {
	escapes, quote := len(opening)-1, opening[len(opening)-1]
	backslashes := 0
	for i := 0; i < len(text); i++ {
		switch one := text[i]; {
		case one == '\\':
			backslashes++
			continue
		case one == quote && quote == '\'' && i+1 < len(text) && (text[i+1] == quote || isLetter(text[i+1])):
			if text[i+1] == quote {
				i++
			}
		case one == quote && backslashes%(2*(escapes+1)) == escapes:
			return text[:i-escapes]
		case one == '\n':
			return text[:i]
		}
		backslashes = 0
	}
	return text
}

func isLetter(one byte) bool {
	return one >= '0' && one <= '9' || one >= 'A' && one <= 'Z' || one >= 'a' && one <= 'z' || one >= 0x80
}

// unquoted returns the value with which a text begins, of at most so many words (0: any number): up to the end of the line, or what separates it from
// something else. What is in brackets belongs together.
func unquoted(text string, words int) string {
	depth, seen := 0, 1
	for i := 0; i < len(text); i++ {
		one := text[i]
		switch {
		case one == '\n' || one == '\r':
			return text[:i]
		case strings.HasPrefix(text[i:], Mark):
			i += len(Mark) - 1
		case strings.IndexByte("{[(", one) >= 0:
			depth++
		case depth > 0 && strings.IndexByte("}])", one) >= 0:
			depth--
		case depth > 0 && one == '"':
			opening := text[len(strings.TrimRight(text[:i], `\`)) : i+1]
			end := i + 1 + len(quoted(text[i+1:], opening))
			if end == len(text) || text[end] == '\n' {
				return text[:end]
			}
			i = end + len(opening) - 1
		case depth > 0:
		case strings.IndexByte("}]),;&\"'\\", one) >= 0:
			if ends.MatchString(text[i:]) {
				return text[:i]
			}
		case one == ' ' || one == '\t':
			if i > 0 && (text[i-1] == ' ' || text[i-1] == '\t') {
				// What follows was looked at in front of the first one.
				continue
			}
			if seen == words || next.MatchString(text[i:]) {
				return text[:i]
			}
			seen++
		}
	}
	return text
}
