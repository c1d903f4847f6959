"""One trial on this node: its host started, asked, listened to and cleaned up after."""
