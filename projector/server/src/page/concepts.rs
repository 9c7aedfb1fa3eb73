//! `GET /ui/concepts`: docs/concepts.md as a page, to whose sections the other pages link. It reads the Markdown that this document
//! uses: headings, paragraphs, lists, indented code, and inside of lines code, emphasis and links. Links to other documents become
//! text, because the server does not have them.

/// The document.
const SOURCE: &str = include_str!("../../concepts.md");

/// Renders the document as a page.
pub(super) fn page() -> String {
    let mut page = String::from(concat!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Concepts · Runlog</title>\n",
        "<link rel=\"icon\" href=\"/ui/icon.svg\">\n<link rel=\"stylesheet\" href=\"/ui/app.css\">\n</head>\n",
        "<body>\n<article class=\"document\" role=\"main\">\n",
    ));
    SOURCE.split("\n\n").for_each(|block| write_block(&mut page, block.trim_matches('\n')));
    page += "</article>\n</body>\n</html>\n";
    page
}

fn write_block(page: &mut String, block: &str) {
    let title = block.trim_start_matches('#');
    let level = block.len() - title.len();
    *page += &if level > 0 {
        let title = title.trim();
        format!("<h{level} id=\"{}\">{}</h{level}>", anchor(title), inline(title))
    } else if block.starts_with("    ") {
        let code: Vec<_> = block.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
        format!("<pre class=\"code\" tabindex=\"0\">{}</pre>", escaped(&code.join("\n")))
    } else if let Some(list) = block.strip_prefix("* ") {
        let items: String = list.split("\n* ").map(|item| format!("<li>{}</li>\n", inline(item))).collect();
        format!("<ul>\n{items}</ul>")
    } else {
        format!("<p>{}</p>", inline(block))
    };
    *page += "\n";
}

/// The anchor of a heading, as other readers of Markdown make it.
fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|each| each.is_alphanumeric() || *each == ' ');
    kept.map(|each| if each == ' ' { '-' } else { each.to_ascii_lowercase() }).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Renders the inside of a block: code between backticks, and elsewhere emphasis and the texts of links.
fn inline(text: &str) -> String {
    let parts = escaped(text);
    let parts = parts.split('`').enumerate();
    parts
        .map(|(nth, part)| match nth % 2 {
            1 => format!("<code>{part}</code>"),
            _ => between(&between(&without_links(part), "**", "b"), "*", "em"),
        })
        .collect()
}

/// Puts an element around every second part of a text.
fn between(text: &str, mark: &str, element: &str) -> String {
    let parts = text.split(mark).enumerate();
    parts
        .map(|(nth, part)| if nth % 2 == 1 { format!("<{element}>{part}</{element}>") } else { part.to_owned() })
        .collect()
}

/// Replaces `[text](address)` by the text.
fn without_links(text: &str) -> String {
    let mut parts = text.split('[');
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once("](").and_then(|(label, rest)| Some((label, rest.split_once(')')?.1))) {
            Some((label, after)) => kept.extend([label, after]),
            None => kept.extend(["[", part]),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_rendered_without_remains_of_its_source() {
        let page = page();
        for expected in [
            "<h1 id=\"concepts\">Concepts</h1>",
            "<h2 id=\"when-something-is-wrong\">When something is wrong</h2>",
            "<h2 id=\"one-writer-per-run-claim-and-epoch\">",
            "<li>A record that cannot be decoded is a <b>dead letter</b>: listed, and skipped over.</li>",
            "agent ──append──▶ log",
            "<code>journal_seq</code>",
            "what an agent is about to do <em>before</em> it does it",
            "The specification has the exact",
        ] {
            assert!(page.contains(expected), "{expected}");
        }
        let text: String = page
            .split("<pre")
            .enumerate()
            .map(|(nth, part)| match nth {
                0 => part,
                _ => part.split_once("</pre>").unwrap().1,
            })
            .collect();
        for mark in ["**", "`", "](", "\n* ", "# "] {
            assert!(!text.contains(mark), "{mark} remains");
        }
        let opened = |element: &str| page.matches(&format!("<{element}>")).count();
        for element in ["b", "em", "code", "p", "ul", "li"] {
            assert_eq!(opened(element), page.matches(&format!("</{element}>")).count(), "{element}");
        }
    }

    #[test]
    fn markup_in_the_document_stays_text() {
        assert_eq!(inline("a <b> & `<i>` \"[x](y)\" [z"), "a &lt;b&gt; &amp; <code>&lt;i&gt;</code> &quot;x&quot; [z");
    }
}
