package command

import (
	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/recovery"
)

func (c *commands) recoveryKeyGroup() *cobra.Command {
	return group("recovery-key", "The recovery key of the owner", c.recoveryKeyNew())
}

func (c *commands) recoveryKeyNew() *cobra.Command {
	return &cobra.Command{
		Use:   "new [FILE]",
		Short: "Make a recovery key",
		Long: `new makes a recovery key: the key that opens the volumes of nodes when nothing else can. It is an age identity (https://age-encryption.org/v1), as age-keygen
makes one. It is written to FILE, which only you may read and which must not be there yet; without FILE to the standard output, for a program that keeps
it. The public half, which begins with age1, is what nodes are set up with (` + "`reeve init --recovery-recipient`" + `).

Keep it offline, in two places, and try it from time to time: ` + "`reeve node unlock --recovery-key FILE --dry-run`" + `.`,
		Example: `  reeve recovery-key new /media/stick/recovery.key
  reeve recovery-key new | age -p -o recovery.key.age`,
		RunE: func(_ *cobra.Command, given []string) error {
			recovery.Guard()
			if len(given) == 0 {
				text, recipient, err := recovery.New(c.Now())
				defer clear(text)
				if err != nil {
					return err
				}
				// Where the standard output goes, nobody may see it.
				c.say("Public half: " + recipient)
				return c.print(output.RecoveryKey{Recipient: recipient, Text: string(text)})
			}
			recipient, err := recovery.Create(given[0], c.Now())
			if err != nil {
				return err
			}
			if err := c.print(output.RecoveryKey{File: given[0], Recipient: recipient}); err != nil {
				return err
			}
			c.say("Keep " + given[0] + " where no machine of the cluster can read it, and a copy elsewhere: whoever has it opens the volumes that are made for it.\n" +
				"A node is set up with its public half: `reeve init --volume fscrypt --recovery-recipient " + recipient + "`.")
			return nil
		},
	}
}
