package page

import (
	"fmt"
	"strings"
)

// Block is a code block of a page.
type Block struct {
	// Line is where it begins in the page, Number which of its code blocks it is, from 1 on.
	Line, Number int
	// Language is what the page says that is in it: `console` for commands and what they show.
	Language string
	// Lines are its lines, without the indent of the block.
	Lines []string
}

// Blocks finds the code blocks of a page.
func Blocks(text string) ([]Block, error) {
	blocks, _, err := split(text)
	return blocks, err
}

// split finds the code blocks of a page, and the comments for its test.
func split(text string) (blocks []Block, directives []Part, err error) {
	const fence = "```"
	indent, open := "", false
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\n")
		trimmed := strings.TrimLeft(line, " ")
		switch {
		case !open && strings.HasPrefix(trimmed, "~~~"):
			return nil, nil, fmt.Errorf("line %d: code blocks are written with %s", number, fence)
		case strings.HasPrefix(trimmed, fence) && open:
			if len(blocks[len(blocks)-1].Lines) == 0 {
				return nil, nil, fmt.Errorf("line %d: an empty code block", number)
			}
			open = false
		case strings.HasPrefix(trimmed, fence):
			indent, open = line[:len(line)-len(trimmed)], true
			blocks = append(blocks, Block{Line: number, Number: len(blocks) + 1, Language: strings.TrimSpace(strings.TrimPrefix(trimmed, fence))})
		case open:
			last := &blocks[len(blocks)-1]
			last.Lines = append(last.Lines, strings.TrimPrefix(line, indent))
		default:
			if found := directiveLine.FindStringSubmatch(line); found != nil {
				directives = append(directives, Part{Kind: Directive, Line: number, Text: found[1]})
			} else if strings.Contains(line, "<!-- test") {
				return nil, nil, fmt.Errorf("line %d: a comment for the test that is not a line `<!-- test: … -->`", number)
			}
		}
	}
	if open {
		return nil, nil, fmt.Errorf("a code block has no end")
	}
	return blocks, directives, nil
}
