package checkpoint

// Step names a change of persistent state: lower-case words with hyphens.
type Step string

const (
	before = "before:"
	after  = "after:"
)

// Before says that a change is about to be made.
func Before(step Step) { At(before + step) }

// After says that a change was made and persisted.
func After(step Step) { At(after + step) }

// Around calls Before, change and, if change succeeds, After.
func Around(step Step, change func() error) error {
	Before(step)
	if err := change(); err != nil {
		return err
	}
	After(step)
	return nil
}
