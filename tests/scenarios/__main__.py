"""Write the outcomes of the stories anew: `python -m tests.scenarios [NAME ...]`; look at the difference."""

import sys

from tests.scenarios.conversation import STORIES, told

for path in sorted(STORIES.glob("*.txt")):
    if len(sys.argv) == 1 or path.stem in sys.argv[1:]:
        text = path.read_text()
        if (new := told(text)) != text:
            path.write_text(new)
            print(f"{path.name} has changed")
